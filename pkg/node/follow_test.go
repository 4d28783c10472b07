package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/follow"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// The plugin makes its GPUNode, which goes with the node, and says how the node is.
func TestReportInGPUNode(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, _ := s.start()
	report := s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	node, err := s.get()
	require.NoError(t, err)
	require.Len(t, node.OwnerReferences, 1)
	assert.Equal(t, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: nodetest.NodeName, UID: "node-uid"}, node.OwnerReferences[0])
	assert.NotEmpty(t, report.BootID)
	assert.Empty(t, report.AppliedHash)
	require.Len(t, report.GPUs, 2)
	assert.Equal(t, card0, report.GPUs[0].Name)
	assert.Equal(t, gpunodes.MIGOff, report.GPUs[0].GPUModes)
	assert.Contains(t, report.GPUs[0].ProductName, "H100")

	s.last = 41
	s.ask(v1beta1.Planning, nothing, snapshot(t, "dynamic", "[{mig: {mode: Dynamic}}]")) // reports come at once now
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	report = s.await("what is held is not reported", func(r *v1beta1.NodeReport) bool { return r.ClaimCount == 1 && r.FreeGPUCount == r.GPUCount-1 })
	assert.Equal(t, []string{small0}, report.GPUs[0].HeldDevices)
	assert.Equal(t, []v1beta1.PartitionReport{{Name: small0, Profile: "1g.10gb"}}, report.GPUs[0].Partitions)
	require.Empty(t, k.unprepare(a))
	s.await("what is released is still reported", func(r *v1beta1.NodeReport) bool { return r.ClaimCount == 0 && r.FreeGPUCount == r.GPUCount })
}

// devicesOn are the devices of a GPU that the API server has.
func devicesOn(t *testing.T, m *machine, gpuID string) []resourceapi.Device {
	t.Helper()
	list, err := m.api.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var devices []resourceapi.Device
	for _, s := range list.Items {
		for _, d := range s.Spec.Devices {
			if gpu.OfDevice(d.Name) == gpuID {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

func deviceNames(devices []resourceapi.Device) []string {
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names
}

// The GPUs are cut as a static profile wants it; claims get what is there, and leave
// it; a restart of the plugin and of the machine change nothing; and it goes back.
func TestStaticProfile(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	task := s.ask(v1beta1.Planning, nothing, sevens)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 2)
	assert.Empty(t, s.partitions())

	task = s.ask(v1beta1.Applying, nothing, sevens)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	assert.Len(t, s.partitions(), 14)
	published := func() bool {
		devices := devicesOn(t, s.machine, card0)
		node, err := s.get()
		return err == nil && len(devices) == 7+1 && node.Status.Node.AppliedHash == sevens.Hash && node.Status.Node.GPUs[0].SliceHash == publish.Digest(devices)
	}
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "the slices have not what the report says")

	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	require.Empty(t, k.unprepare(a))
	assert.Len(t, s.partitions(), 14)

	stop()
	k, _ = s.start()
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "a restart changes what is published")
	k.mustPrepare(a)
	require.Empty(t, k.unprepare(a))

	task = s.ask(v1beta1.Applying, sevens, snapshot(t, "dynamic", "[{mig: {mode: Dynamic}}]"))
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	assert.Empty(t, s.partitions())
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) > 20 }, nodetest.Patience, nodetest.Tick, "not all is offered again")
	k.works(nodetest.Allocate(t, s.api, "b", card0))
}

// What a claim holds stays published, and is given to nobody else, until it is
// released.
func TestNoLongerOffered(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, _ := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	halves := snapshot(t, "halves", "[{mig: {mode: Dynamic, profiles: [3g.40gb]}}]")
	task := s.ask(v1beta1.Planning, nothing, halves)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	assert.Empty(t, task.Changes, "nobody has to leave")
	task = s.ask(v1beta1.Applying, nothing, halves)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	tainted := func(d resourceapi.Device) bool {
		return len(d.Taints) == 1 && d.Taints[0].Key == names.TaintNotOffered && d.Taints[0].Effect == resourceapi.DeviceTaintEffectNoSchedule
	}
	require.Eventually(t, func() bool {
		for _, d := range devicesOn(t, s.machine, card0) {
			if strings.Contains(d.Name, "-mig-1g-10gb-") && (d.Name != small0 || !tainted(d)) {
				return false
			}
		}
		return true
	}, nodetest.Patience, nodetest.Tick)
	report := s.await("that it waits is not said", func(r *v1beta1.NodeReport) bool { return r.GPUs[0].Pending != "" })
	assert.Contains(t, report.GPUs[0].Pending, small0+" is no longer offered once its claim is released")
	require.Empty(t, k.unprepare(a))
	require.Eventually(t, func() bool {
		names := strings.Join(deviceNames(devicesOn(t, s.machine, card0)), " ")
		return !strings.Contains(names, "1g-10gb") && strings.Contains(names, half0)
	}, nodetest.Patience, nodetest.Tick)
}

// A profile has static partitions also at positions that claims are not offered otherwise. What a
// claim holds there stays until it is released.
func TestPositionsOfStaticPartitions(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, _ := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	const third = card0 + "-mig-1g-10gb-plus-me-3"
	withEngines := func() []string {
		all := slices.DeleteFunc(deviceNames(devicesOn(t, s.machine, card0)), func(name string) bool { return !strings.Contains(name, "-me-") })
		slices.Sort(all)
		return all
	}
	var usual []string
	require.Eventually(t, func() bool { usual = withEngines(); return len(usual) > 0 }, nodetest.Patience, nodetest.Tick)
	require.NotContains(t, usual, third)

	static := snapshot(t, "static", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 3}, {profile: 1g.10gb+me, count: 1}]}}]")
	task := s.ask(v1beta1.Applying, nothing, static)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	require.Eventually(t, func() bool { return slices.Equal(withEngines(), []string{third}) }, nodetest.Patience, nodetest.Tick)
	a := nodetest.Allocate(t, s.api, "a", third)
	k.mustPrepare(a)

	task = s.ask(v1beta1.Applying, static, snapshot(t, "dynamic", "[{mig: {mode: Dynamic}}]"))
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	all := append(slices.Clone(usual), third)
	slices.Sort(all)
	require.Eventually(t, func() bool { return slices.Equal(withEngines(), all) }, nodetest.Patience, nodetest.Tick)
	require.Empty(t, k.unprepare(a))
	require.Eventually(t, func() bool { return slices.Equal(withEngines(), usual) }, nodetest.Patience, nodetest.Tick)
}

// A profile that does not fit is refused before anything is touched.
func TestProfileDoesNotFit(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	task := s.ask(v1beta1.Planning, nothing, snapshot(t, "cut", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 8}]}}]"))
	assert.Equal(t, v1beta1.TaskRefused, task.Phase)
	assert.Contains(t, task.Message, "1g.10gb")
	assert.Empty(t, s.partitions())
}

// How the GPUs are shared comes with the profile.
func TestSharingOfProfile(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	task := s.ask(v1beta1.Applying, nothing, snapshot(t, "four", "[{sharing: {replicas: 4}}]"))
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	require.Eventually(t, func() bool {
		for _, d := range devicesOn(t, s.machine, card0) {
			if d.Name == fraction0 {
				quantity := d.Capacity["fraction"].RequestPolicy.Default
				return quantity.String() == "250m"
			}
		}
		return false
	}, nodetest.Patience, nodetest.Tick)
}

// A GPU that changes its MIG mode by a reset only, which is refused: the node is
// rebooted where the profile allows it, and the switch is finished then.
func TestRebootForProfile(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.write("inventories/two.yaml", strings.Replace(twoGPUs, "H100-80GB", "A100-80GB", 1))
	s := steer(m)
	s.start()
	first := s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	assert.Equal(t, gpunodes.MIGOff, first.GPUs[0].GPUModes)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{Resets: []nvstate.ResetFault{{GPU: "*", Refused: true}}}))
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	s.policy = v1beta1.SwitchPolicy{Reboot: v1beta1.RebootIfRequired}
	task := s.ask(v1beta1.Applying, nothing, sevens)
	require.Equal(t, v1beta1.TaskRebootRequired, task.Phase, task.Message)
	task = s.askAgain(v1beta1.Rebooting)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	report := s.await("no boot id", func(r *v1beta1.NodeReport) bool { return r.BootID != first.BootID })
	assert.Equal(t, gpunodes.MIGOn, report.GPUs[0].GPUModes)
	assert.Len(t, s.partitions(), 14)

	// Without the permission the mode is as it was.
	s.policy = v1beta1.SwitchPolicy{}
	task = s.ask(v1beta1.Applying, sevens, snapshot(t, "whole", "[{mig: {mode: Disabled}}]"))
	require.Equal(t, v1beta1.TaskRebootRequired, task.Phase, task.Message)
}

// A GPU that fails after every boot: the node is not rebooted for ever.
func TestRebootsForOneProfileAreLimited(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.write("inventories/two.yaml", strings.Replace(twoGPUs, "H100-80GB", "A100-80GB", 1))
	s := steer(m)
	s.start()
	before := s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{
		Resets: []nvstate.ResetFault{{GPU: "*", Refused: true}},
		Calls:  []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}},
	}))
	s.policy = v1beta1.SwitchPolicy{Reboot: v1beta1.RebootIfRequired}
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	whole := snapshot(t, "whole", "[{mig: {mode: Disabled}}]")
	for range follow.MostReboots {
		s.ask(v1beta1.Applying, whole, sevens)
		task := s.askAgain(v1beta1.Rebooting)
		require.Equal(t, v1beta1.TaskFailed, task.Phase, task.Message)
		assert.NotEqual(t, names.ReasonRebootRequired, task.Reason, task.Message)
		after := s.await("not rebooted", func(r *v1beta1.NodeReport) bool { return r.BootID != before.BootID })
		before = after
	}
	s.ask(v1beta1.Applying, whole, sevens)
	task := s.askAgain(v1beta1.Rebooting)
	require.Equal(t, v1beta1.TaskFailed, task.Phase, task.Message)
	assert.Equal(t, names.ReasonRebootRequired, task.Reason, "the controller does not try that again by itself")
	assert.Contains(t, task.Message, "was rebooted 2 times for profile all-1g.10gb")
}

// A GPU in MIG mode without partitions is offered to nobody. One that is unchanged has the
// devices that it had, also after a restart, and for a claim that holds one.
func TestEnabledBesideUnchanged(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	before := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb}]}}]")
	task := s.ask(v1beta1.Applying, nothing, before)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)

	enabled := snapshot(t, "enabled", "[{gpus: {indexes: [1]}, mig: {mode: NoPartitions}}, {unchanged: true}]")
	task = s.ask(v1beta1.Planning, before, enabled)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, card1, task.Changes[0].GPU)
	task = s.ask(v1beta1.Applying, before, enabled)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	published := func() bool {
		return len(devicesOn(t, s.machine, card0)) == 7+1 && len(devicesOn(t, s.machine, card1)) == 1 // the one for monitors
	}
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "other devices than those of the unchanged GPU are published")
	s.await("the mode is not reported", func(r *v1beta1.NodeReport) bool {
		return len(r.GPUs) == 2 && r.GPUs[1].MIGMode == v1beta1.MIGModeEnabled && len(r.GPUs[1].Problems) == 0
	})
	stop()
	k, _ = s.start()
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "a restart changes what is published")
	k.mustPrepare(a)
	require.Empty(t, k.unprepare(a))
	assert.Len(t, s.partitions(), 7)
}

// Claims that the hardware cannot prepare are reported until they can be, or go; those that ask
// for something wrong, or find a process in the way, are not.
func TestClaimsThatTheHardwareCannotPrepareAreReported(t *testing.T) {
	s := steerAMD(t)
	k, _ := s.start()
	assert.Equal(t, gpunodes.XCP("SPX", "NPS1"), s.modes())
	require.NotEmpty(t, k.refused(nodetest.Allocate(t, s.api, "wrong", amdCard0+"-tpx-1")))
	s.amdFaults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: amdAddress, File: computeFile, Process: &amdgpu.Process{PID: 77, Name: "rocminfo", GPUs: []string{amdAddress}}}}})
	require.NotEmpty(t, k.refused(nodetest.Allocate(t, s.api, "busy", cpx3)))
	_ = amdgpu.EndProcess(s.simulated.Root, 77)

	s.amdFaults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: amdAddress, Partitions: []int{3}, Missing: "kfd"}}})
	c, gone := nodetest.Allocate(t, s.api, "a", cpx3), nodetest.Allocate(t, s.api, "gone", cpx3)
	require.NotEmpty(t, k.refused(c))
	require.NotEmpty(t, k.refused(gone))
	r := s.await("the claims are not reported", func(r *v1beta1.NodeReport) bool { return len(r.UnpreparedClaims) == 2 })
	assert.Equal(t, "claim-a", r.UnpreparedClaims[0].Name)
	assert.Contains(t, r.UnpreparedClaims[0].Message, "KFD has only 7 of the 8 partitions")
	since := r.UnpreparedClaims[0].FirstFailureTime
	require.NotEmpty(t, k.refused(c))
	require.Empty(t, k.unprepare(gone))
	r = s.await("a claim that is gone is reported", func(r *v1beta1.NodeReport) bool { return len(r.UnpreparedClaims) == 1 })
	assert.True(t, since.Equal(&r.UnpreparedClaims[0].FirstFailureTime))

	s.amdFaults(amdgpu.Faults{})
	require.Eventually(t, func() bool { return k.prepare(c)["a"].Error == "" }, nodetest.Patience, nodetest.Tick)
	s.await("a claim that works is reported", func(r *v1beta1.NodeReport) bool { return len(r.UnpreparedClaims) == 0 })
	require.Empty(t, k.unprepare(c))
}

// An unhealthy GPU is reported with the time at which it was found, also by the next plugin.
func TestUnhealthyGPUsAreReported(t *testing.T) {
	s := steerAMD(t)
	_, stop := s.start()
	assert.Equal(t, gpunodes.XCP("SPX", "NPS1"), s.modes())
	s.amdFaults(amdgpu.Faults{RAS: []amdgpu.RAS{{GPU: amdAddress, Uncorrectable: 2}}})
	sick := func(r *v1beta1.NodeReport) bool {
		return len(r.UnhealthyGPUs) == 1 && r.UnhealthyGPUs[0].Name == amdCard0
	}
	since := s.await("the GPU is not reported", sick).UnhealthyGPUs[0].DetectionTime
	stop()
	s.start()
	s.await("the restart is not reported", func(r *v1beta1.NodeReport) bool { return len(r.GPUs[0].Problems) > 0 })
	assert.True(t, since.Equal(&s.await("the GPU is not reported", sick).UnhealthyGPUs[0].DetectionTime))
	s.amdFaults(amdgpu.Faults{})
	s.await("a healthy GPU is reported", func(r *v1beta1.NodeReport) bool { return len(r.UnhealthyGPUs) == 0 })
}

// steadyBasis checks that a claim, and what it changes on its GPU, does not change the
// basis of plans.
func (s *steered) steadyBasis(k *fakeKubelet, device string, modesWith v1beta1.GPUModes) string {
	t := s.t
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	s.ask(v1beta1.Planning, nothing, snapshot(t, "dynamic", "[{}]")) // reports come at once now
	before := s.await("no basis", func(r *v1beta1.NodeReport) bool { return r.InputHash != "" })
	assert.NotEqual(t, modesWith, before.GPUs[0].GPUModes)
	a := nodetest.Allocate(t, s.api, "basis", device)
	k.mustPrepare(a)
	held := s.await("the claim changes no mode", func(r *v1beta1.NodeReport) bool { return r.ClaimCount == 1 && r.GPUs[0].GPUModes == modesWith })
	assert.Equal(t, before.InputHash, held.InputHash)
	require.Empty(t, k.unprepare(a))
	return before.InputHash
}

func TestBasisOfNVIDIA(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, stop := s.start()
	basis := s.steadyBasis(k, small0, gpunodes.MIGOn)
	stop()
	_, stop = s.start()
	same := s.await("no report", func(r *v1beta1.NodeReport) bool { return r.ClaimCount == 0 })
	assert.Equal(t, basis, same.InputHash, "a restart changes nothing")
	stop()
	s.config.MemoryModes, s.simulated.AMD.MemoryModes = true, true
	s.start()
	s.await("a setting of the plugin does not count", func(r *v1beta1.NodeReport) bool { return r.InputHash != basis })
}

func TestBasisOfAMD(t *testing.T) {
	s := steerAMD(t)
	k, _ := s.start()
	basis := s.steadyBasis(k, cpx3, gpunodes.XCP("CPX", "NPS1"))
	task := s.ask(v1beta1.Applying, nothing, snapshot(t, "cpx-nps4", cpxNPS4))
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	s.await("the memory mode does not count", func(r *v1beta1.NodeReport) bool { return r.InputHash != basis })
}
