package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// A GPU falls off the bus under a held partition. The claim is released at once, and
// the partition goes when the GPU is back, before anything new comes.
func TestReleaseOnALostGPU(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	m.faults(nvdriver.Faults{Lost: []string{address0}, XIDs: []nvdriver.XID{{GPU: address0, XID: 79}}})
	nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", card0)
	require.Empty(t, k.unprepare(c), "the kubelet must be able to remove the pod")
	require.Equal(t, []string{small0}, m.partitions())
	require.Empty(t, m.files(m.config.CDIDir, "*.json"))

	stop()
	m.start()
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) == (onGPU(d) == address0) })
	m.faults(nvdriver.Faults{})
	require.Eventually(t, func() bool { return len(m.partitions()) == 0 }, nodetest.Patience, nodetest.Tick)
	awaitDevices(t, m.api, false, untainted)
	m.nothingHeld()
}

// A GPU is lost, and the plugin starts again after the kubelet has removed the slices of the node: the
// GPU is published as lost, not forgotten.
func TestLostGPUAfterARestart(t *testing.T) {
	for name, test := range map[string]struct {
		machine  func(*testing.T, *fake.Clientset) *machine
		lost     string
		lose     func(*machine, string)
		noFaults func(*machine)
	}{
		"NVIDIA": {
			newMachine, address0,
			func(m *machine, address string) { m.faults(nvdriver.Faults{Lost: []string{address}}) },
			func(m *machine) { m.faults(nvdriver.Faults{}) },
		},
		"AMD": {
			newAMDMachine, amdAddress,
			func(m *machine, address string) { m.amdFaults(amdgpu.Faults{Lost: []string{address}}) },
			func(m *machine) { m.amdFaults(amdgpu.Faults{}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := test.machine(t, nodetest.NewAPI())
			_, stop := m.start()
			awaitDevices(t, m.api, false, untainted)
			test.lose(m, test.lost)
			onlyIt := func(d resourceapi.Device) bool { return untainted(d) == (onGPU(d) != test.lost) }
			awaitDevices(t, m.api, false, onlyIt)
			stop()
			for _, s := range nodetest.SlicesOf(t, m.api, names.DriverName) {
				require.NoError(t, m.api.ResourceV1().ResourceSlices().Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
			}
			m.start()
			awaitDevices(t, m.api, false, onlyIt)
			test.noFaults(m)
			awaitDevices(t, m.api, false, untainted)
		})
	}
}

// A GPU answers a call of the release with each code that nvml.h has for it, or does not answer. The
// pod leaves, its events say what became of the partition, and the partition goes when the GPU works
// again.
func TestReleaseOnAFailingGPU(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	for call, codes := range map[string][]nvml.Return{
		"GetHandle":          {nvml.ERROR_INSUFFICIENT_POWER, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_NO_PERMISSION, nvml.ERROR_UNKNOWN, nvml.ERROR_RESET_REQUIRED},
		"GetGpuInstances":    {nvml.ERROR_UNKNOWN},
		"GpuInstanceDestroy": {nvml.ERROR_UNKNOWN, nvml.ERROR_RESET_REQUIRED, nvml.SUCCESS},
	} {
		for _, code := range codes {
			fault := nvdriver.CallFault{Call: call, GPU: address0, Error: nvdriver.Return(code), Hang: code == nvml.SUCCESS}
			uid := strings.ToLower(fmt.Sprintf("%s-%d", call, code))
			c := nodetest.Allocate(t, m.api, uid, small0)
			k.mustPrepare(c)
			m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{fault}})
			require.Empty(t, k.unprepare(c), uid)
			nodetest.AwaitEvent(t, m.api, "ReleaseNotFinished", "Claim team/claim-"+uid+" was released, but "+small0+" could not be removed from the hardware")
			require.Len(t, m.records(), 1, uid)
			if call == "GpuInstanceDestroy" && code == nvml.ERROR_UNKNOWN {
				m.attractsNobodyTo(small0, uid)
			}
			m.faults(nvdriver.Faults{})
			require.Eventually(t, func() bool { return len(m.partitions())+len(m.records()) == 0 }, nodetest.Patience, nodetest.Tick, uid)
			awaitDevices(t, m.api, false, untainted)
		}
	}
	m.nothingHeld()
}

// attractsNobodyTo waits until the devices are tainted whose place a leftover takes. The others of the
// GPU, which is healthy, are not.
func (m *machine) attractsNobodyTo(device, uid string) {
	m.t.Helper()
	awaitDevices(m.t, m.api, false, func(d resourceapi.Device) bool {
		switch {
		case d.Name == device || d.Name == card0:
			return len(d.Taints) == 1 && d.Taints[0].Key == names.TaintUnhealthy
		case onGPU0(d) && !is1g10gb(d):
			return true
		}
		return untainted(d)
	})
	nodetest.AwaitEvent(m.t, m.api, names.EventDevicesFail, "claim team/claim-"+uid+" was released, but "+device+" could not be removed from the hardware, which is retried")
}

// A time slice is restored when the GPU is back.
func TestTimeSliceOfALostGPU(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	m.profile("{sharing: {strategy: TimeSlicing, timeSlice: Long}}")
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", fraction0)
	k.mustPrepare(c)
	m.faults(nvdriver.Faults{Lost: []string{address0}})
	nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", card0)
	require.Empty(t, k.unprepare(c))
	m.faults(nvdriver.Faults{})
	require.Eventually(t, func() bool { return len(m.records()) == 0 }, nodetest.Patience, nodetest.Tick)
	awaitDevices(t, m.api, false, untainted)
	m.nothingHeld()
}

// A process that no claim explains keeps a GPU from changing its MIG mode. Its
// partitions are tainted before a pod runs into it, those of other GPUs are not.
func TestBusyGPUIsTainted(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.start()
	awaitDevices(t, m.api, false, untainted)
	m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: address0, PID: 4711}}})
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "GPUBusy", card0), "process 4711")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool {
		if onGPU(d) == address0 && strings.Contains(d.Name, "-mig-") {
			return len(d.Taints) == 1 && d.Taints[0].Key == names.TaintBusy && d.Taints[0].Effect == resourceapi.DeviceTaintEffectNoSchedule
		}
		return untainted(d)
	})
	m.faults(nvdriver.Faults{})
	awaitDevices(t, m.api, false, untainted)
}

// Somebody destroys a partition under a claim: the node's events, the pod's status and
// the scheduler hear of it.
func TestPartitionRemovedUnderAClaim(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	stream, err := drahealth.NewDRAResourceHealthClient(k.conn).NodeWatchResources(t.Context(), &drahealth.NodeWatchResourcesRequest{})
	require.NoError(t, err)
	m.awaitHealth(stream, small0, drahealth.HealthStatus_HEALTHY)

	m.destroy(small0)
	note := nodetest.AwaitEvent(t, m.api, "HeldDeviceGone", small0)
	assert.Contains(t, note, "somebody other than Tranche has removed the partition")
	assert.Contains(t, note, "claim team/claim-a, pod pod-a")
	assert.Contains(t, m.awaitHealth(stream, small0, drahealth.HealthStatus_UNHEALTHY), "has removed the partition")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) == (onGPU(d) == address0) })

	require.Empty(t, k.unprepare(c))
	nodetest.AwaitEvent(t, m.api, "HeldDeviceReleased", small0)
	awaitDevices(t, m.api, false, untainted)
	m.nothingHeld()
}

// A rule that counts GPUs does not go over to another one when a GPU falls silent;
// the GPU follows the profile when it answers again, and is counted no more when it was
// taken out.
func TestLostGPUKeepsItsPlace(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	_, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	shared := snapshot(t, "shared", "[{gpus: {count: 1}, sharing: {replicas: 4}}, {sharing: {replicas: 2}}]")
	require.Equal(t, v1beta1.TaskDone, s.ask(v1beta1.Applying, nothing, shared).Phase)
	awaitReplicas(t, s.api, card1+"-fraction-share", 500)

	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{Lost: []string{"0000:1b:00.0"}}))
	s.await("the lost GPU is not noticed", func(r *v1beta1.NodeReport) bool { return len(r.GPUs[0].Problems) > 0 })
	cut := snapshot(t, "cut", "[{gpus: {count: 1}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	both := snapshot(t, "both", "[{gpus: {count: 2}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	for range 2 {
		awaitReplicas(t, s.api, card1+"-fraction-share", 500)
		task := s.ask(v1beta1.Planning, shared, cut)
		// The loss can be told before the next look at all GPUs, which leaves the GPU out of plans.
		for deadline := time.Now().Add(nodetest.Patience); task.Phase == v1beta1.TaskFailed && time.Now().Before(deadline); {
			task = s.ask(v1beta1.Planning, shared, cut)
		}
		require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
		assert.Empty(t, task.Changes, "the rule has gone over to the other GPU")
		task = s.ask(v1beta1.Planning, shared, both)
		require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
		require.Len(t, task.Changes, 1)
		assert.Equal(t, card1, task.Changes[0].GPU)
		stop()
		_, stop = s.start()
	}
	require.Equal(t, v1beta1.TaskDone, s.ask(v1beta1.Applying, shared, cut).Phase)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{}))
	require.Eventually(t, func() bool { return len(s.partitions()) == 7 }, nodetest.Patience, nodetest.Tick, "it does not follow the profile")

	stop()
	s.write("inventories/two.yaml", "gpus: [{model: H100-80GB, pci: [\"0000:43:00.0\"]}]\n")
	// Calls of the driver that the plugin has given up still write.
	require.Eventually(t, func() bool { return os.RemoveAll(s.simulated.Root) == nil }, nodetest.Patience, nodetest.Tick)
	_, stop = s.start()
	defer stop()
	require.Eventually(t, func() bool {
		r, err := inventory.OpenRoster(s.config.rosterFile())
		return err == nil && len(r.All()) == 1
	}, nodetest.Patience, nodetest.Tick, "a removed GPU is still counted")
	task := s.ask(v1beta1.Planning, cut, snapshot(t, "halves", "[{gpus: {count: 1}, mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}]}}]"))
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, card1, task.Changes[0].GPU)
}
