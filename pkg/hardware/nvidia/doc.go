// Package nvidia implements the contract of pkg/hardware for NVIDIA's GPUs. vendor.go and
// driver.go are the way in. inventory.go turns what NVML says of a GPU into pkg/gpu;
// partitions.go, sharing.go and obstacles.go answer claims; health.go and watch.go report
// whether a GPU is healthy. usage.go measures GPUs and partitions: what NVML says at once; gpm.go
// has what it works out of two samples (GPM, from Hopper on), processes.go what single processes
// use. memorylimits.go limits the memory of control groups.
//
// xid.go, xidtable.go and recovery.go say what the driver's errors (XIDs) mean and what to do about
// them. Below this package, session makes the NVML calls, creates and destroys MIG partitions and
// switches MIG mode, and container describes GPUs to containers.
//
// calls.md lists every NVML call: since which driver it exists, what an older library answers, and
// what is done then.
//
// It does not know whether the NVML below it is real or simulated.
package nvidia
