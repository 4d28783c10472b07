package hardware

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// checkAssumptions compares what Tranche assumes of NVIDIA's drivers with what reading tells, and
// prints what only a comparison of two reports can tell: of two drivers, or of two machines.
func checkAssumptions(t *testing.T, m *machine) {
	for _, g := range gpusOf(t, m) {
		device, ret := m.nvml.DeviceGetHandleByPciBusId(g.PCIAddress)
		require.Equal(t, nvml.SUCCESS, ret)
		a := &assumptions{t: t, machine: m, gpu: g, device: device}
		a.checkCapacities()
		a.checkMemory()
		a.tellMode()
		a.tellHealth()
	}
}

// assumptions are those about one GPU.
type assumptions struct {
	t *testing.T
	*machine
	gpu    gpu.GPU
	device nvml.Device
}

// checkCapacities: beside the partitions that there are, the counters allow as many more of each
// profile as the driver does.
func (a *assumptions) checkCapacities() {
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := a.device.GetGpuInstanceProfileInfo(number)
		if ret != nvml.SUCCESS {
			continue
		}
		name, of := "(several or none)", a.placementsOf(&info)
		if len(of) > 0 {
			name = of[0].Profile
		}
		a.t.Logf("%s, profile %d: %s, %d MiB, %d multiprocessors, engines %d %d %d %d %d, %d placements, %d instances",
			a.gpu.Name(), info.Id, name, info.MemorySizeMB, info.MultiprocessorCount,
			info.CopyEngineCount, info.DecoderCount, info.EncoderCount, info.JpegCount, info.OfaCount, len(of), info.InstanceCount)
		if len(of) == 0 {
			continue
		}
		capacity, ret := a.device.GetGpuInstanceRemainingCapacity(&info)
		if ret != nvml.SUCCESS {
			a.t.Logf("%s, profile %s: the driver does not tell how many more fit (%v)", a.gpu.Name(), name, ret)
			continue
		}
		assert.Equal(a.t, capacity, a.counted(of), "%s: how many more of %s fit, as the driver and as the counters say", a.gpu.Name(), name)
	}
}

// placementsOf are those of the one profile of this size. Its name is told by newer drivers only.
func (a *assumptions) placementsOf(info *nvml.GpuInstanceProfileInfo) (of []gpu.Placement) {
	for _, p := range a.gpu.Placements {
		if p.Type != gpu.TypeMIG || p.Memory>>20 != int64(info.MemorySizeMB) || p.ComputeUnits != int64(info.MultiprocessorCount) ||
			p.Engines[mig.Decoders] != int64(info.DecoderCount) || p.Engines[mig.OFAEngines] != int64(info.OfaCount) {
			continue
		}
		if len(of) > 0 && of[0].Profile != p.Profile {
			return nil // two that differ in what is not told here
		}
		of = append(of, p)
	}
	return of
}

// counted is how many of these placements of one profile the counters allow.
func (a *assumptions) counted(placements []gpu.Placement) (n int) {
	live, err := a.Live(a.ctx(a.t), a.gpu.PCIAddress)
	require.NoError(a.t, err)
	held := gpu.Counters{}
	for _, one := range live {
		if p, ok := a.gpu.Placement(one.Name()); ok {
			held.Add(p.Consumes)
		}
	}
	slices.SortFunc(placements, func(x, y gpu.Placement) int { return cmp.Compare(x.Start, y.Start) })
	for _, p := range placements {
		with := maps.Clone(held)
		with.Add(p.Consumes)
		if with.Exceeds(a.gpu.Counters) == "" {
			held, n = with, n+1
		}
	}
	return n
}

// checkMemory: the GPU tells how much memory it has, or is known to use that of the host.
func (a *assumptions) checkMemory() {
	memory, ret := a.device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		assert.Equal(a.t, nvml.ERROR_NOT_SUPPORTED, ret)
		a.t.Logf("%s tells no memory: it is published without any", a.gpu.Name())
		return
	}
	assert.Positive(a.t, memory.Total)
	mode, ret := a.device.GetAddressingMode()
	a.t.Logf("%s: %d MiB of memory; addressing mode %d (%v), of which limits of MPS may depend", a.gpu.Name(), memory.Total>>20, mode.Value, ret)
}

// tellMode prints what decides whether MIG mode can be changed at once, and who would be in the way.
func (a *assumptions) tellMode() {
	modes, err := a.Modes(a.ctx(a.t), a.gpu.PCIAddress)
	require.NoError(a.t, err)
	resetless := []nvml.FieldValue{{FieldId: nvml.FI_DEV_IS_RESETLESS_MIG_SUPPORTED}}
	ret := a.device.GetFieldValues(resetless)
	persistence, _ := a.device.GetPersistenceMode()
	obstacles, err := a.Obstacles(a.ctx(a.t), a.gpu.PCIAddress, false)
	require.NoError(a.t, err)
	a.t.Logf("%s: MIG mode %+v; mode without a reset: %v (%v, %v); persistence mode %d; in the way of a change: %v",
		a.gpu.Name(), modes, resetless[0].Value[0], nvml.Return(resetless[0].NvmlReturn), ret, persistence, obstacles)
}

// tellHealth prints what decides whether a GPU is published as healthy.
func (a *assumptions) tellHealth() {
	corrected, uncorrected, pending, failed, ret := a.device.GetRemappedRows()
	action := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	_ = a.device.GetFieldValues(action)
	a.t.Logf("%s: remapped rows %d %d, pending %t, failed %t (%v); the driver asks for %v (%v); health: %v",
		a.gpu.Name(), corrected, uncorrected, pending, failed, ret, action[0].Value[0], nvml.Return(action[0].NvmlReturn),
		a.CheckHealth(a.ctx(a.t), a.gpu.PCIAddress))
}
