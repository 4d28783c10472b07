package xcp

import "github.com/tranche-dev/tranche/pkg/gpu"

// chip is a model as a plain table, for the pure parts.
type chip struct {
	name string
	Chip
	units  int64
	memory int64 // MiB, as mem_info_vram_total says
}

// chips is every model that has compute partitions. Compute units are those of AMD's
// data sheets. The memory modes are all that go with a compute mode
// of the chip in the kernel's rule; a GPU may be able to do fewer of them.
//
// Read on real machines: the memory of MI300X (ROCm/k8s-gpu-dra-driver,
// docs/demo.md), of MI350X (the KFD nodes that ROCm/rocm-systems has for
// rocprofiler-sdk's tests), and of the partitions of MI308X
// (ROCm/k8s-device-plugin, testdata/topology-parsing-mi308). Calculated from the
// size of the HBM less 16 MiB: MI325X, MI350P, MI355X and MI300A, whose HBM is the memory
// of the whole system.
func chips() []chip {
	all := []MemoryMode{NPS1, NPS2, NPS4}
	known := []chip{
		{"MI300X", Chip{GFX: 90402, MemoryModes: all}, 304, 196592},
		{"MI300A", Chip{GFX: 90402, MemoryModes: []MemoryMode{NPS1}}, 228, 131056},
		{"MI308X", Chip{GFX: 90402, MemoryModes: all}, 80, 196592},
		{"MI325X", Chip{GFX: 90402, MemoryModes: all}, 304, 262128},
		{"MI350P", Chip{GFX: 90500, MemoryModes: []MemoryMode{NPS1}}, 128, 147440},
		{"MI350X", Chip{GFX: 90500, MemoryModes: all}, 256, 294896},
		{"MI355X", Chip{GFX: 90500, MemoryModes: all}, 256, 294896},
	}
	for i := range known {
		product, _ := ProductNamed(known[i].name)
		known[i].XCCs = product.XCCs
	}
	return known
}

func chipOf(name string) chip {
	for _, c := range chips() {
		if c.name == name {
			return c
		}
	}
	panic("no chip " + name)
}

// facts are those of a GPU of the model in a memory mode.
func (c chip) facts(memory MemoryMode) Facts {
	f := Facts{
		PCIAddress: "0000:c1:00.0", XCCs: c.XCCs, ComputeUnits: c.units, Memory: c.memory << 20,
		MemoryMode: memory, Modes: Legal(c.Chip, memory),
	}
	for _, m := range c.MemoryModes {
		f.Elsewhere = append(f.Elsewhere, Legal(c.Chip, m)...)
	}
	return f
}

// gpuWith is one with these placements, for the arithmetic.
func gpuWith(f Facts) gpu.GPU {
	placements, counters := Devices(f)
	return gpu.GPU{PCIAddress: f.PCIAddress, Vendor: gpu.AMD, Counters: counters, Placements: placements}
}
