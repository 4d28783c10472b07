// Package container describes NVIDIA's driver and its GPUs to containers, as CDI edits: what
// every container needs (edits.go), the device nodes of a GPU, and the capability nodes
// that give access to one MIG instance (capabilities.go). Paths are those of the host
// (paths.go), where the container runtime works.
package container
