package xcp

import "slices"

// Product is a GPU that AMD sells for computing.
type Product struct {
	// Name is AMD's, without the vendor: "MI300X".
	Name string
	// Device and VF are the PCI device ids of the GPU and of its virtual functions. VF is zero
	// if it is not known.
	Device, VF uint16
	// XCCs is the number of accelerator complexes, 1 for a GPU without compute modes.
	XCCs int
}

// products lists the GPUs. Ids: ROCm/rocm-systems,
// projects/rocprofiler-compute/src/utils/mi_gpu_spec.yaml (chip_ids). 0x740c has the name of
// libdrm's data/amdgpu.ids. XCCs: AMD's data sheets ("MI300X: 8 XCDs", "MI300A: 6 XCDs", "MI350
// series: 8 XCDs"). Those of the MI308X are its num_xcc in ROCm/k8s-device-plugin,
// testdata/topology-parsing-mi308 (four nodes of one XCC each). Those of the MI350P are num_xcds
// of SPX in mi_gpu_spec.yaml, which its authors compared with amd-smi (ROCm/rocm-systems#4399).
var products = []Product{
	{"MI100", 0x738c, 0, 1},
	{"MI210", 0x740f, 0x7410, 1},
	{"MI250X / MI250", 0x740c, 0, 1},
	{"MI250X", 0x7408, 0, 1},
	{"MI300A", 0x74a0, 0x74b4, 6},
	{"MI300X", 0x74a1, 0x74b5, 8},
	{"MI308X", 0x74a2, 0x74b6, 4},
	{"MI325X", 0x74a5, 0x74b9, 8},
	{"MI308X HF", 0x74a8, 0x74bc, 4},
	{"MI300X HF", 0x74a9, 0x74bd, 8},
	{"MI350X", 0x75a0, 0x75b0, 8},
	{"MI358", 0x75a2, 0x75b2, 8},
	{"MI355X", 0x75a3, 0x75b3, 8},
	{"MI350P", 0x75a8, 0x75b8, 4},
}

// ProductOf returns the product with a PCI device id, and whether the id is that of a virtual
// function. It returns false for ids that are not known.
func ProductOf(device uint16) (p Product, vf, ok bool) {
	i := slices.IndexFunc(products, func(p Product) bool { return p.Device == device || p.VF == device })
	if device == 0 || i < 0 {
		return Product{}, false, false
	}
	return products[i], products[i].VF == device, true
}

// ProductNamed returns the product with a name, or false.
func ProductNamed(name string) (Product, bool) {
	i := slices.IndexFunc(products, func(p Product) bool { return p.Name == name })
	if i < 0 {
		return Product{}, false
	}
	return products[i], true
}

// FullName is the product's name as drivers write it: "AMD Instinct MI300X VF".
func (p Product) FullName(vf bool) string {
	if vf {
		return "AMD Instinct " + p.Name + " VF"
	}
	return "AMD Instinct " + p.Name
}
