// Package nvidia implements the contract of pkg/hardware for NVIDIA's GPUs. vendor.go and
// driver.go are the way in. inventory.go turns what NVML says of a GPU into pkg/gpu;
// partitions.go, sharing.go and obstacles.go answer claims; health.go and watch.go tell
// whether a GPU is healthy. usage.go measures GPUs and partitions: what NVML says at once; gpm.go
// has what it works out of two samples (GPM, from Hopper on), processes.go what single processes
// use.
//
// Below it, session makes the NVML calls, creates and destroys MIG partitions and switches MIG
// mode, container describes GPUs to containers, and xid says what errors mean.
//
// calls.md lists every NVML call: since which driver it exists, what an older library answers, and
// what is done then.
//
// It does not know whether the NVML below it is real or simulated.
package nvidia
