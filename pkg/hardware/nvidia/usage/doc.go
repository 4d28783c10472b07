// Package usage reads how much NVIDIA's GPUs are used: memory, activity, power, throttling and
// memory errors of GPUs and MIG partitions, and what their processes use.
//
// usage.go reads what NVML tells at once, gpm.go what it works out of two samples (GPM, from
// Hopper on), processes.go what single processes use.
package usage
