package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// A package installs another branch of NVIDIA's driver while pods have partitions. The process that runs
// keeps the library that it has opened, which is the one that the loaded module belongs to. The next one
// takes the new library over partitions that the old one has made.
func TestLibraryOfAnotherDriverIsInstalled(t *testing.T) {
	s := startAtNight(t)
	s.gpuPod("holder", class1g10gb)
	s.waitRunning("holder")
	container, plugin := s.container("holder"), s.plugin(nodeA)
	// The new pod's instance of the simulated drivers installs its own library again.
	t.Cleanup(func() { s.restartPlugin(nodeA) })

	s.installDriver("535")
	s.gpuPod("next", class3g40gb)
	s.waitRunning("next")
	require.Equal(t, restarts(plugin), restarts(s.plugin(nodeA)))

	s.killPlugin(plugin)
	s.eventually("the plugin has not been restarted", func() (bool, string) {
		now := s.plugin(nodeA)
		return now.UID == plugin.UID && restarts(now) > restarts(plugin), "it is still the same process"
	})
	s.delete("next")
	s.waitGone("next")
	s.gpuPod("last", class3g40gb)
	s.waitRunning("last")
	assert.Equal(t, container, s.container("holder"))
	s.requireInstances(2)
}

// restarts is how often the plugin's container was restarted.
func restarts(pod *corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }

// installDriver replaces the library of node-a by that of another branch of the driver.
func (s *suite) installDriver(branch string) {
	s.t.Helper()
	bin, err := filepath.Abs(repository + "/bin")
	require.NoError(s.t, err)
	driver := bin + "/simulated-driver"
	flags := strings.Join([]string{"--instance=e2e", "--root=" + simulateRoot, "--node-name=" + nodeA, "--inventory=h100x8",
		"--library=" + branch, "--libraries=" + bin + "/simulated-nvml", "--program=" + driver}, " ")
	s.onNode(nodeA, "sh", "-c", driver+" "+flags+" & until "+driver+" ready "+flags+"; do kill -0 $! || exit 1; sleep 0.1; done; kill $!; wait $!")
}

// The simulated driver of AMD's GPUs is killed: its files are away until it is back, pods keep their
// partitions, and the next ones are given out.
func TestSimulatedDriverIsKilled(t *testing.T) {
	s := startAtNight(t)
	s.gpuPodAt(nodeC, "holder", classCPX, "")
	s.waitRunning("holder")
	container, plugin := s.container("holder"), s.plugin(nodeC)
	for _, process := range s.processes(plugin, "simulated-driver") {
		require.NoError(t, syscall.Kill(process, syscall.SIGKILL))
	}
	s.eventually("the simulated driver is back", func() (bool, string) {
		pod := s.plugin(nodeC)
		status := pod.Status.InitContainerStatuses[0]
		return status.RestartCount == 1 && status.Started != nil && *status.Started, fmt.Sprintf("%+v", status)
	})
	s.gpuPodAt(nodeC, "next", classCPX, "")
	s.waitRunning("next")
	assert.Equal(t, container, s.container("holder"))
	assert.Equal(t, restarts(plugin), restarts(s.plugin(nodeC)), "the plugin goes on")
}

// waitReleased waits until the plugin of a node has let go of its driver, and says so on all devices.
func (s *suite) waitReleased(node, signal string) {
	s.t.Helper()
	s.waitNodeEvent(node, names.EventDriverReleased, "was released for its upgrade, which the node's "+signal+" requests")
	s.eventually("the devices of "+node+" say that their driver is replaced", func() (bool, string) {
		return s.tainted(node, names.TaintDriverUpgrade), strings.Join(taintedDevices(s.slices(node)), " ")
	})
}

// waitDriver waits until the plugin of a node uses its driver.
func (s *suite) waitDriver(node string) {
	s.t.Helper()
	s.eventually("the plugin of "+node+" uses the driver", func() (bool, string) {
		text, err := s.get(node, "readyz")
		tainted := taintedDevices(s.slices(node))
		return err == nil && len(tainted) == 0, fmt.Sprint(text, err, tainted)
	})
}

const (
	// upgradeState is the label of NVIDIA's upgrade controller (NVIDIA/k8s-operator-libs,
	// pkg/upgrade/consts.go), deployExporter one of those that its driver manager pauses
	// (NVIDIA/k8s-driver-manager, cmd/driver-manager).
	upgradeState   = "nvidia.com/gpu-driver-upgrade-state"
	deployExporter = "nvidia.com/gpu.deploy.dcgm-exporter"
	paused         = "paused-for-driver-upgrade"
)

// NVIDIA's GPU operator replaces the driver: its upgrade controller and its driver manager write what
// they write, in their order, while a pod keeps its partition.
func TestNVIDIAsOperatorReplacesTheDriver(t *testing.T) {
	s := start(t)
	t.Cleanup(func() {
		s.kubectl("uncordon", nodeA)
		s.labelNode(nodeA, upgradeState, "")
		s.labelNode(nodeA, deployExporter, "")
	})
	unload := func() {
		s.eventually("nobody uses the driver", func() (bool, string) {
			_, err := s.tryByHandOn(nodeA, action{Unload: true})
			return err == nil, fmt.Sprint(err)
		})
	}
	s.labelNode(nodeA, deployExporter, "true")
	s.gpuPod("stays", class1g10gb)
	s.gpuPod("leaves", class1g10gb)
	stays := s.waitRunning("leaves", "stays")

	for _, state := range []string{"upgrade-required", "cordon-required", "wait-for-jobs-required", "pod-deletion-required"} {
		s.labelNode(nodeA, upgradeState, state)
	}
	s.kubectl("cordon", nodeA)
	_, err := s.tryByHandOn(nodeA, action{Unload: true})
	require.ErrorContains(t, err, "in use", "in these states, pods leave with the driver")
	s.labelNode(nodeA, upgradeState, "pod-restart-required")
	s.waitReleased(nodeA, "label "+upgradeState+"=pod-restart-required")
	s.delete("leaves")
	s.labelNode(nodeA, deployExporter, paused)
	unload()
	s.labelNode(nodeA, deployExporter, "true") // before the driver's container has built and loaded the next one
	assert.True(t, s.tainted(nodeA, names.TaintDriverUpgrade))
	s.byHand(action{Load: true})
	s.labelNode(nodeA, upgradeState, "validation-required")
	s.waitDriver(nodeA)
	s.waitInstances(1)
	for _, state := range []string{"uncordon-required", "upgrade-done"} {
		s.labelNode(nodeA, upgradeState, state)
	}
	s.kubectl("uncordon", nodeA)
	s.gpuPod("beside", class1g10gb)
	s.waitRunning("beside")
	s.requireInstances(2)
	s.delete("beside")
	assert.Equal(t, stays.UID, s.pod("stays").UID)

	// Without the controller, nothing announces the time in which there is no driver.
	s.labelNode(nodeA, deployExporter, "mine_"+paused)
	s.waitReleased(nodeA, "label "+deployExporter+"=mine_"+paused)
	unload()
	s.labelNode(nodeA, deployExporter, "mine")
	s.eventually("the devices of "+nodeA+" are unhealthy", func() (bool, string) {
		return s.tainted(nodeA, names.TaintUnhealthy), strings.Join(taintedDevices(s.slices(nodeA)), " ")
	})
	s.byHand(action{Load: true})
	s.waitDriver(nodeA)
	s.waitInstances(1)
	s.delete("stays")
	s.requireNextPodRuns()
}

// AMD's GPU operator replaces the driver: it taints the node, and the Kernel Module Management operator
// unloads amdgpu and loads another version, as soon as no process uses it. A claim keeps its partition.
func TestAMDsOperatorReplacesTheDriver(t *testing.T) {
	s := start(t)
	// ROCm/gpu-operator, internal/controllers/upgrademgr.go
	const taint, version = "amd-gpu-driver-upgrade", "kmm.node.kubernetes.io/version-module.kube-amd-gpu.default"
	t.Cleanup(func() {
		_, _ = s.try("kubectl", "taint", "node", nodeC, taint+"-") // there is none at the end
		s.labelNode(nodeC, version, "")
	})
	driver := func() (version string) {
		for _, slice := range s.slices(nodeC) {
			for i := range slice.Spec.Devices {
				if v := slice.Spec.Devices[i].Attributes["driverVersion"].VersionValue; v != nil {
					version = *v
				}
			}
		}
		return version
	}
	before, amd := driver(), s.amdGPUs()
	s.gpuPodAt(nodeC, "stays", classCPX, amd[0])
	s.gpuPodAt(nodeC, "leaves", classSPX, amd[1])
	stays := s.waitRunning("leaves", "stays")
	const pid = 4000000 // no other process has it
	s.byHandOn(nodeC, action{Process: &amdgpu.Process{PID: pid, Name: "python3", GPUs: amd[1:2]}})

	s.kubectl("taint", "node", nodeC, taint+"=true:NoSchedule")
	s.waitReleased(nodeC, "taint "+taint)
	s.labelNode(nodeC, version, "6.18.4")
	said, err := s.tryByHandOn(nodeC, action{Modprobe: "-r amdgpu"})
	require.Error(t, err)
	require.Contains(t, said, "Module amdgpu is in use", "the operator does not know pods with claims")
	s.byHandOn(nodeC, action{EndProcess: pid})
	s.delete("leaves")
	s.byHandOn(nodeC, action{Modprobe: "-r amdgpu"})
	s.installAMD("6.18.4")
	s.byHandOn(nodeC, action{Modprobe: "amdgpu"})
	s.firstMinors = nil
	assert.Equal(t, "SPX", s.amdFile(pciDevices+amd[0]+"/current_compute_partition"), "the partition is gone")
	assert.True(t, s.tainted(nodeC, names.TaintDriverUpgrade), "until the operator says that it is done")
	s.kubectl("taint", "node", nodeC, taint+"-")
	s.waitDriver(nodeC)
	assert.Equal(t, "6.18.4", driver())
	s.eventually("the partition is there again", func() (bool, string) {
		mode := s.amdFile(pciDevices + amd[0] + "/current_compute_partition")
		return mode == "CPX", mode
	})
	assert.Equal(t, stays.UID, s.pod("stays").UID)
	s.gpuPodAt(nodeC, "beside", classCPX, amd[0])
	beside := s.waitRunning("beside")
	s.requireSeesAMD(beside, "main", s.allocated(beside, ""), "cpx")
	s.delete("stays", "beside")

	s.kubectl("taint", "node", nodeC, taint+"=true:NoSchedule")
	s.eventually("the driver is released again", func() (bool, string) {
		return s.tainted(nodeC, names.TaintDriverUpgrade), ""
	})
	s.byHandOn(nodeC, action{Modprobe: "-r amdgpu"})
	s.installAMD("")
	s.byHandOn(nodeC, action{Modprobe: "amdgpu"})
	s.firstMinors = nil
	s.kubectl("taint", "node", nodeC, taint+"-")
	s.waitDriver(nodeC)
	assert.Equal(t, before, driver())
	s.gpuPodAt(nodeC, "next", "gpu-xcp-qpx.tranche.dev", "")
	next := s.waitRunning("next")
	s.requireSeesAMD(next, "main", s.allocated(next, ""), "qpx")
}

// waitInstances waits until node-a has the partitions of its claims again.
func (s *suite) waitInstances(count int) {
	s.t.Helper()
	s.eventually("the partitions of claims are there", func() (bool, string) {
		m := s.machine(nodeA)
		return m.instances() == count && len(s.records(nodeA)) == count, m.String()
	})
	s.requireInstances(count)
}

// installAMD installs a version of amdgpu on node-c, for the next load; empty: that of the inventory.
func (s *suite) installAMD(version string) {
	s.t.Helper()
	require.NoError(s.t, amdgpu.InstallDriver(s.onDisk(nodeC, simulateRoot), version))
}
