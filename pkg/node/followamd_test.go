package node

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

const cpxNPS4 = "[{gpus: {vendor: amd}, xcp: {computePartition: CPX, memoryPartition: NPS4}}]"

// steerAMD is a machine with AMD GPUs whose memory mode may be changed.
func steerAMD(t *testing.T) *steered {
	s := steer(newAMDMachine(t, nodetest.NewAPI()))
	s.config.MemoryModes, s.simulated.AMD.MemoryModes = true, true
	return s
}

func (s *steered) modes() v1beta1.GPUModes {
	return s.await("no GPUs", func(r *v1beta1.NodeReport) bool { return len(r.GPUs) == 2 }).GPUs[0].GPUModes
}

// The memory mode changes by a new load of the driver, and then the compute mode; what
// is published is of the new modes, on healthy GPUs. A reboot loses both, and they
// are put back.
func TestMemoryModeOfProfile(t *testing.T) {
	s := steerAMD(t)
	k, stop := s.start()
	assert.Equal(t, gpunodes.XCP("SPX", "NPS1"), s.modes())
	to := snapshot(t, "cpx-nps4", cpxNPS4)
	task := s.ask(v1beta1.Planning, nothing, to)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 2)
	assert.Contains(t, task.Changes[0].Description, "NPS4")

	task = s.ask(v1beta1.Applying, nothing, to)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	nps4 := func() bool {
		devices := devicesOn(t, s.machine, amdCard0)
		for _, d := range devices {
			if !gpu.IsMonitor(d.Name) && (!strings.Contains(d.Name, "-cpx-") || !untainted(d) || *d.Attributes["memoryPartition"].StringValue != "NPS4") {
				return false
			}
		}
		return len(devices) == 8+1
	}
	require.Eventually(t, nps4, nodetest.Patience, nodetest.Tick, "the partitions of the new modes are not published")
	assert.Equal(t, gpunodes.XCP("CPX", "NPS4"), s.modes())
	k.works(nodetest.Allocate(t, s.api, "a", cpx3))

	stop()
	require.NoError(t, amdgpu.Reboot(s.simulated.Root))
	k, _ = s.start()
	require.Eventually(t, nps4, nodetest.Patience, nodetest.Tick, "a reboot has lost the modes")
	k.works(nodetest.Allocate(t, s.api, "b", cpx3))

	task = s.ask(v1beta1.RollingBack, snapshot(t, "spx-nps1", "[{xcp: {computePartition: SPX, memoryPartition: NPS1}}]"), to)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	require.Eventually(t, func() bool {
		devices := devicesOn(t, s.machine, amdCard0)
		names := strings.Join(deviceNames(devices), " ")
		return strings.HasPrefix(names, amdCard0) && !strings.Contains(names, "-cpx-")
	}, nodetest.Patience, nodetest.Tick)
}

// The driver keeps the old memory mode without a word: that is noticed, and what was
// is published still.
func TestMemoryModeLost(t *testing.T) {
	s := steerAMD(t)
	k, _ := s.start()
	assert.Equal(t, gpunodes.XCP("SPX", "NPS1"), s.modes())
	require.NoError(t, amdgpu.SetFaults(s.simulated.Root, amdgpu.Faults{MemoryModeLost: true}))
	to := snapshot(t, "cpx-nps4", cpxNPS4)
	task := s.ask(v1beta1.Applying, nothing, to)
	require.Equal(t, v1beta1.TaskFailed, task.Phase)
	assert.Contains(t, task.Message, "NPS1")
	task = s.ask(v1beta1.RollingBack, nothing, to)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	require.Eventually(t, func() bool {
		devices := devicesOn(t, s.machine, amdCard0)
		return len(devices) > 8 && untainted(devices[0])
	}, nodetest.Patience, nodetest.Tick)
	k.works(nodetest.Allocate(t, s.api, "a", amdCard0))
}

// Without the privilege nothing is reloaded, and the profile is refused.
func TestMemoryModeNotAllowed(t *testing.T) {
	s := steer(newAMDMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	task := s.ask(v1beta1.Planning, nothing, snapshot(t, "cpx-nps4", cpxNPS4))
	assert.Equal(t, v1beta1.TaskRefused, task.Phase)
	assert.Contains(t, task.Message, "amd.memoryPartitions")
}

// A claim that is there when the GPUs are about to change keeps them as they are.
func TestClaimInTheWayOfProfile(t *testing.T) {
	s := steerAMD(t)
	k, _ := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	a := nodetest.Allocate(t, s.api, "a", amdCard0)
	k.mustPrepare(a)
	task := s.ask(v1beta1.Applying, nothing, snapshot(t, "cpx-nps4", cpxNPS4))
	assert.Equal(t, v1beta1.TaskFailed, task.Phase)
	assert.Contains(t, task.Message, "team/claim-a")
	require.Empty(t, k.unprepare(a))
}

// A driver that could not be loaded again is tried again as long as the plugin runs,
// whether anybody asks for it or not. Without it nothing was rolled back.
func TestDriverLeftOut(t *testing.T) {
	s := steerAMD(t)
	k, _ := s.start()
	assert.Equal(t, gpunodes.XCP("SPX", "NPS1"), s.modes())
	require.NoError(t, amdgpu.SetFaults(s.simulated.Root, amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Error: "no device", Times: 40}}}))
	to := snapshot(t, "cpx-nps4", cpxNPS4)
	task := s.ask(v1beta1.Applying, nothing, to)
	require.Equal(t, v1beta1.TaskFailed, task.Phase)
	assert.Contains(t, task.Message, "could not be loaded again")
	s.await("it is not said that the GPUs are gone", func(r *v1beta1.NodeReport) bool { return len(r.GPUs[0].Problems) > 0 && len(r.GPUs[1].Problems) > 0 })
	task = s.ask(v1beta1.RollingBack, nothing, to)
	assert.Equal(t, v1beta1.TaskFailed, task.Phase)
	assert.Contains(t, task.Message, "is their driver loaded?")

	require.NoError(t, amdgpu.SetFaults(s.simulated.Root, amdgpu.Faults{}))
	require.Eventually(t, func() bool {
		devices := devicesOn(t, s.machine, amdCard0)
		return len(devices) > 0 && untainted(devices[0])
	}, nodetest.Patience, nodetest.Tick, "the GPUs do not come back")
	task = s.ask(v1beta1.RollingBack, nothing, to)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	k.works(nodetest.Allocate(t, s.api, "a", amdCard0))
}

func TestComputeModeOfProfile(t *testing.T) {
	s := steer(newAMDMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	task := s.ask(v1beta1.Applying, nothing, snapshot(t, "dpx", "[{xcp: {computePartition: DPX}}]"))
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	assert.Equal(t, "DPX", s.mode())
}
