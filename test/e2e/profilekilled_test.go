package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The controller dies while what was is put back, and another one brings that to its
// end, with the reason why.
func TestTheControllerKilledWhileItRollsBack(t *testing.T) {
	s := start(t)
	broken := s.machine(nodeA).GPUs[7].PCI
	before := s.published(nodeA)
	s.setProfile("cut-in-three", cutInThree)
	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "CreateGpuInstance", GPU: broken, Error: nvdriver.Return(nvml.ERROR_UNKNOWN)},
		{Call: "GpuInstanceDestroy", GPU: "*", Delay: metav1.Duration{Duration: 300 * time.Millisecond}},
	}})
	s.labelProfile(nodeA, "cut-in-three")
	n := s.waitGPUNode(nodeA, "rolls back", inState(v1beta1.RollingBack))
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonSwitching)
	assert.Contains(t, said, "rolls back to no profile, because ")
	s.killControllers()
	n = s.waitFailed(nodeA, names.ReasonHardwareFailed)
	said = s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonHardwareFailed)
	for _, part := range []string{gpu.NameOf(broken), "CreateGpuInstance", "The node is unchanged, with no profile"} {
		assert.Contains(t, said, part)
	}
	assert.Equal(t, v1beta1.ResultRolledBack, n.Status.History[0].Result)
	assert.Zero(t, s.machine(nodeA).instances())
	assert.Equal(t, before, s.published(nodeA))
}

// cutsLast makes each partition of NVIDIA's GPUs take a while.
func cutsLast(d time.Duration) nvdriver.Faults {
	return nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "*", Delay: metav1.Duration{Duration: d}}}}
}

// The plugin goes while it changes GPUs, and comes back: the switch ends in the profile.
func TestThePluginGoneWhileItChangesGPUs(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	s.setProfile("cut-in-three", cutInThree)
	s.setFaults(cutsLast(time.Second))
	s.labelProfile(nodeA, "cut-in-three")
	s.eventually("some partitions are made", func() (bool, string) {
		m := s.machine(nodeA)
		return m.instances() > 0, m.String()
	})
	s.restartPlugin(nodeA)
	n := s.gpuNode(nodeA)
	require.Equal(t, v1beta1.Applying, n.Status.State, gpuNodeText(n))
	require.NotEmpty(t, s.switchTaints(nodeA), "no pod may come now")
	s.clearFaults(nodeA)
	n = s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, v1beta1.ResultSucceeded, n.Status.History[0].Result)
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}

// The power of a node fails in the middle of a switch. Whatever that takes of pods,
// partitions and modes: when the node is up again, the switch ends in the profile.
func TestTheNodeRebootedInTheMiddle(t *testing.T) {
	for name, test := range map[string]struct {
		node, profile, class string
		state                v1beta1.State
		faults               nvdriver.Faults
	}{
		"draining": {node: nodeA, profile: "cut-in-three", class: classWhole, state: v1beta1.Draining},
		"applying": {node: nodeA, profile: "cut-in-three", state: v1beta1.Applying, faults: cutsLast(10 * time.Second)},
		"the driver is out for a memory mode": {
			node: nodeC, profile: "cpx-nps4", state: v1beta1.Applying,
			faults: nvdriver.Faults{AMD: &amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Delay: metav1.Duration{Duration: 30 * time.Second}}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startAtNight(t)
			if test.node == nodeA {
				s.setProfile(test.profile, cutInThree)
			}
			if test.class != "" {
				s.slowPod(test.node, "slow", test.class, 120)
			}
			s.setFaultsOn(test.node, test.faults)
			s.unlabelAtEnd(test.node)
			if test.node == nodeC {
				t.Cleanup(func() { s.clearFaults(nodeC); s.memoryModeBack(nodeC) })
			}
			s.setProfileLabel(test.node, test.profile)
			n := s.waitGPUNode(test.node, "is "+string(test.state), inState(test.state))
			boot := n.Status.Node.BootID
			require.NotEmpty(t, s.switchTaints(test.node))
			s.onHost("cluster", "reboot", "--dir", s.cluster, "--node", test.node)
			n = s.waitFollows(test.node, test.profile)
			assert.NotEqual(t, boot, n.Status.Node.BootID)
			assert.Equal(t, v1beta1.ResultSucceeded, n.Status.History[0].Result)
			s.firstMinors = nil
			if test.node == nodeC {
				assert.Equal(t, 8, strings.Count(s.hardwareOf(nodeC), "CPX NPS4"))
				return
			}
			assert.Equal(t, 8*3, s.machine(nodeA).instances())
			if test.class != "" {
				s.waitGone("slow")
			}
		})
	}
}

// hardwareOf is what the simulated GPUs of a node are: how they are cut, and AMD's
// modes.
func (s *suite) hardwareOf(node string) string {
	s.t.Helper()
	if node != nodeC {
		return s.machine(node).String()
	}
	text := ""
	for _, pci := range s.amdGPUs() {
		text += pci + " " + s.amdFile(pciDevices+pci+"/current_compute_partition") + " " + s.amdFile(pciDevices+pci+"/current_memory_partition") + "\n"
	}
	return text
}
