// Package amd is AMD Instinct GPUs as claims need them: what the files of their
// kernel driver, amdgpu with KFD, say about a GPU becomes pkg/gpu; a placement
// becomes a compute mode of the GPU; and a partition becomes what a container
// gets to see of it (CDI edits).
//
// The way through it: kfd.go reads the topology, partitions.go finds in it which
// piece of which GPU each node is; inventory.go, shape.go and configs.go read a
// GPU, of which pkg/hardware/xcp says what it offers; switch.go changes the mode,
// await.go waits for what comes of it, busy.go and processes.go say who is in the
// way; modes.go says how a GPU is set, and memorymode.go and reload.go change the
// memory mode of all, for which the driver is loaded anew; cdi.go describes partitions
// to containers; health.go, watch.go, obstacles.go and load.go say whether a GPU is
// well. Every call to a file goes through task.go, because any of them may hang, and
// every error through errors.go.
//
// Which GPUs: those that can be cut (amdgpu makes partition files for them), and
// of the others those whose KFD node is of a compute generation (CDNA: gfx908,
// gfx90a, gfx94x, gfx95x). Graphics GPUs, the graphics of processors and GPUs
// without KFD are not ours.
//
// vendor.go opens the driver for the plugin.
//
// It is pure Go and does not know whether the files below it are the host's or a
// simulated kernel's.
//
// Imports: pkg/gpu, pkg/hardware, pkg/hardware/gate, pkg/hardware/kmod, pkg/hardware/mps,
// pkg/hardware/xcp, pkg/sleep.
package amd
