// Package amd implements the vendor contract of pkg/hardware for AMD Instinct GPUs: inventory,
// partitions, modes, health, and what containers need.
//
// sysfs, below it, reads. This package changes something: switch.go and await.go the compute
// mode, memorymode.go and reload.go the memory mode of all GPUs, for which the driver is
// reloaded, memorylimits.go the memory limits of control groups. It does not know whether the
// files are the host's or a simulated kernel's.
package amd
