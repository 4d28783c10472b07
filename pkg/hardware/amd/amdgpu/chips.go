package amdgpu

// chip is what a PCI device id of AMD's says.
type chip struct {
	name string
	xccs int
	// vf is true for the id that a virtual function of the GPU has.
	vf bool
}

// chips are the GPUs that can be cut, for drivers that do not tell what is asked.
// Ids: ROCm/rocprofiler-compute, src/utils/mi_gpu_spec.yaml. XCCs: AMD's data
// sheets ("MI300X: 8 XCDs", "MI300A: 6 XCDs", "MI350 series: 8 XCDs"); those of the
// MI308X are its num_xcc in ROCm/k8s-device-plugin,
// testdata/topology-parsing-mi308 (four nodes of one XCC each).
var chips = func() map[uint64]chip {
	all := map[uint64]chip{}
	for _, row := range []struct {
		physical, vf uint64
		name         string
		xccs         int
	}{
		{0x74a0, 0x74b4, "AMD Instinct MI300A", 6},
		{0x74a1, 0x74b5, "AMD Instinct MI300X", 8},
		{0x74a2, 0x74b6, "AMD Instinct MI308X", 4},
		{0x74a5, 0x74b9, "AMD Instinct MI325X", 8},
		{0x74a8, 0x74bc, "AMD Instinct MI308X HF", 4},
		{0x74a9, 0x74bd, "AMD Instinct MI300X HF", 8},
		{0x75a0, 0x75b0, "AMD Instinct MI350X", 8},
		{0x75a2, 0x75b2, "AMD Instinct MI358", 8},
		{0x75a3, 0x75b3, "AMD Instinct MI355X", 8},
	} {
		all[row.physical] = chip{name: row.name, xccs: row.xccs}
		all[row.vf] = chip{name: row.name + " VF", xccs: row.xccs, vf: true}
	}
	return all
}()
