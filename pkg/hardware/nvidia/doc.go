// Package nvidia is NVIDIA's GPUs as claims need them: what NVML knows about a
// GPU becomes pkg/gpu, placements become MIG instances and back, and a
// placement becomes what a container gets to see of it (CDI edits).
//
// The way through it: profiles.go and inventory.go read a GPU, of which
// pkg/hardware/mig says what it offers; mode.go, instances.go, create.go and
// destroy.go change it as claims ask for it, switchmig.go as profiles do, and
// sharing.go sets it for those who share it; cdi.go, capabilities.go and paths.go
// describe it to containers; watch.go, health.go and load.go say whether it is well, by the
// XIDs of package xid; foreign.go says how to be rid of partitions that are not ours. Every
// NVML call goes through gate.go, because any of them may hang, and every error through
// errors.go. session.go lets go of NVML while a GPU is reset.
//
// vendor.go opens the driver for the plugin, and hook.go installs what containers need
// on the host.
//
// It does not know whether the NVML below it is real or simulated.
//
// Imports: pkg/gpu, pkg/hardware, pkg/hardware/gate, pkg/hardware/mig, pkg/hardware/mps,
// pkg/hardware/nvidia/xid, pkg/program, pkg/sleep.
package nvidia
