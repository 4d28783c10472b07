// Package sysfs reads what the kernel driver amdgpu says about its GPUs: which there are, what
// they offer, the modes they are in and the partitions that exist now. It changes no mode.
//
// files.go, host.go and paths.go are the files: /sys, /proc and /dev of the host, or of a
// simulated kernel. Any call to them can hang in the kernel, so each belongs to a [Task], which
// is the only one at its GPU and can be given up. A [Machine] has all GPUs and what was learnt
// about them; a [GPU] is one of them during a task.
//
// Which GPUs: those that can be partitioned (amdgpu has partition files for them), and of
// the others those whose KFD node is of a compute generation (CDNA: gfx908, gfx90a, gfx94x,
// gfx95x). Graphics GPUs, the graphics of processors and GPUs without KFD are left out.
//
// topology.go, node.go and kfdpartitions.go read KFD, the compute part of the driver, in which each
// GPU or partition is a node; processes.go and uses.go the processes that use it.
package sysfs
