// Package session makes the NVML calls. Each has a deadline and runs alone on its GPU,
// because NVML calls can hang and cannot be cancelled. NVML is closed while a GPU is
// reset, because an open session keeps the GPUs in use. session.go opens and closes NVML,
// task.go makes calls, gpu.go those for one GPU, errors.go says what failed.
//
// create.go, destroy.go and instances.go create and destroy MIG partitions for claims: GPU
// instances and the compute instances in them. profiles.go reads the profiles of a GPU,
// migmode.go its MIG mode, and switchmig.go switches that for profiles. What a GPU offers, given
// its profiles, is decided in pkg/hardware/mig.
//
// It does not know whether the NVML below it is real or simulated.
package session
