// Package nodes has what nodes with simulated GPUs publish: our ResourceSlices, and for
// comparison those of NVIDIA's DRA driver for the same GPUs. For benchmarks and tests.
//
// It may import the Kubernetes API, the hardware packages, pkg/gpu, pkg/publish,
// pkg/profile, pkg/share and test/allocator.
package nodes
