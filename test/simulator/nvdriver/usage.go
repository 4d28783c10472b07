package nvdriver

import (
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// loads are the loads on an instance of the GPU; nil is the GPU without instances.
func (d *device) loads(instance *int) []load.Load {
	faults, _ := d.nv.faults.Read()
	var mine []load.Load
	for _, l := range faults.Load {
		if l.On(d.gpu().PCI, instance) {
			mine = append(mine, l)
		}
	}
	return mine
}

// partMemory is what is in use of the memory of a GPU instance, in bytes.
func (d *device) partMemory(st *nvstate.State, i *nvstate.GPUInstance, p *models.Profile) uint64 {
	var used uint64
	for _, process := range d.clientsOf(st, i.ID) {
		used += process.Memory()
	}
	for _, l := range d.loads(&i.ID) {
		used += p.MemoryMiB << 20 * uint64(l.Memory) / 100
	}
	return min(used, p.MemoryMiB<<20)
}

// memoryUsed is what is in use of the memory of the GPU, in bytes.
func (d *device) memoryUsed() (used uint64, err error) {
	st, err := d.nv.store.Read()
	if err != nil || st == nil {
		return 0, err
	}
	g, ok := st.GPU(d.gpu().PCI)
	if ok && g.MIGMode {
		for i := range g.Instances {
			if p, ok := profileByID(d.gpu().Model, uint32(g.Instances[i].Profile)); ok {
				used += d.partMemory(st, &g.Instances[i], p)
			}
		}
		return used, nil
	}
	for _, process := range d.clients(st) {
		used += process.Memory()
	}
	for _, l := range d.loads(nil) {
		total, _ := d.gpu().Model.Memory()
		used += total / 100 * uint64(l.Memory)
	}
	return used, nil
}

// busy is how many percent of the compute units of an instance are busy; nil is the GPU
// without instances.
func (d *device) busy(st *nvstate.State, i *nvstate.GPUInstance) float64 {
	name, processes, instance := d.uuid, d.clients(st), (*int)(nil)
	if i != nil {
		name, processes, instance = fmt.Sprintf("%s/%d", d.uuid, i.ID), d.clientsOf(st, i.ID), &i.ID
	}
	sum := 0.0
	for _, p := range processes {
		sum += float64(p.Compute)
	}
	for _, l := range d.loads(instance) {
		sum += l.ComputeAt(name, time.Now())
	}
	return min(100, sum)
}

// busyInAll is how many percent of the compute units of the GPU are busy.
func (d *device) busyInAll(st *nvstate.State, g *nvstate.GPU) float64 {
	if !g.MIGMode {
		return d.busy(st, nil)
	}
	sum := 0.0
	for i := range g.Instances {
		if p, ok := profileByID(d.gpu().Model, uint32(g.Instances[i].Profile)); ok {
			sum += d.busy(st, &g.Instances[i]) * float64(p.Multiprocessors) / float64(d.gpu().Model.Multiprocessors)
		}
	}
	return min(100, sum)
}

// viewState is view, with the whole state.
func (d *device) viewState(call string) (*nvstate.State, *nvstate.GPU, nvml.Return) {
	g, ret := d.view(call)
	if ret != nvml.SUCCESS {
		return nil, nil, ret
	}
	st, err := d.nv.store.Read()
	if err != nil {
		return nil, nil, d.nv.unexpected(call, err)
	}
	return st, g, nvml.SUCCESS
}

// GetUtilizationRates is NOT_SUPPORTED in MIG mode (nvml.h).
func (d *device) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	st, g, ret := d.viewState("GetUtilizationRates")
	if ret != nvml.SUCCESS {
		return nvml.Utilization{}, ret
	}
	if g.MIGMode {
		return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
	}
	busy := d.busy(st, nil)
	return nvml.Utilization{Gpu: uint32(busy), Memory: uint32(busy / 2)}, nvml.SUCCESS
}

// boardWatts are what boards of a generation draw at most, roughly.
var boardWatts = map[string]float64{"Volta": 300, "Turing": 70, "Ampere": 400, "Ada Lovelace": 300, "Hopper": 700, "Blackwell": 1000}

// GetPowerUsage grows with what is busy. The unit is milliwatts.
func (d *device) GetPowerUsage() (uint32, nvml.Return) {
	st, g, ret := d.viewState("GetPowerUsage")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	most := boardWatts[d.gpu().Model.Architecture]
	return uint32(1000 * most * (0.1 + 0.9*d.busyInAll(st, g)/100)), nvml.SUCCESS
}

// GetSupportedClocksEventReasons are all that loads can have.
func (d *device) GetSupportedClocksEventReasons() (bits uint64, ret nvml.Return) {
	for _, bit := range load.Reasons {
		bits |= bit
	}
	return bits | nvml.ClocksEventReasonGpuIdle, d.check("GetSupportedClocksEventReasons")
}

// GetCurrentClocksEventReasons are those of the loads.
func (d *device) GetCurrentClocksEventReasons() (bits uint64, ret nvml.Return) {
	d.eachLoad(func(l load.Load) {
		for _, reason := range l.Throttled {
			bits |= load.Reasons[reason]
		}
	})
	return bits, d.check("GetCurrentClocksEventReasons")
}

// GetTotalEccErrors counts those of the loads.
func (d *device) GetTotalEccErrors(kind nvml.MemoryErrorType, _ nvml.EccCounterType) (count uint64, ret nvml.Return) {
	d.eachLoad(func(l load.Load) {
		if kind == nvml.MEMORY_ERROR_TYPE_CORRECTED {
			count += uint64(l.Corrected)
		} else {
			count += uint64(l.Uncorrected)
		}
	})
	return count, d.check("GetTotalEccErrors")
}

// eachLoad goes through the loads of the GPU and of its instances.
func (d *device) eachLoad(f func(load.Load)) {
	faults, _ := d.nv.faults.Read()
	for _, l := range faults.Load {
		if l.On(d.gpu().PCI, l.Instance) {
			f(l)
		}
	}
}

// GetProcessUtilization lists the processes that keep anything busy; NOT_FOUND without any,
// NOT_SUPPORTED in MIG mode (nvml.h).
func (d *device) GetProcessUtilization(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	st, g, ret := d.viewState("GetProcessUtilization")
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case g.MIGMode:
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	var samples []nvml.ProcessUtilizationSample
	for _, p := range d.clients(st) {
		if p.Compute > 0 && !p.MPS { // of clients of MPS, the server alone
			samples = append(samples, nvml.ProcessUtilizationSample{
				Pid: uint32(p.PID), TimeStamp: uint64(time.Now().UnixMicro()), SmUtil: uint32(p.Compute), MemUtil: uint32(p.Compute / 2),
			})
		}
	}
	if len(samples) == 0 {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return samples, nvml.SUCCESS
}
