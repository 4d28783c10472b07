package names

// The resources of nodes that Tranche manages, in their status and in requests of pods. They let
// the scheduler skip nodes whose GPUs are full.
const (
	// ResourceGPUMemory is the memory of the node's GPUs, in bytes.
	ResourceGPUMemory = "tranche.dev/gpu-memory"
	// ResourceGPUCompute is the compute of the node's GPUs, in thousandths of a GPU.
	ResourceGPUCompute = "tranche.dev/gpu-compute"
)

// GPUResourceMapName is the name of the GPUResourceMap of each namespace.
const GPUResourceMapName = "tranche"
