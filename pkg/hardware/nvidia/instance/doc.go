// Package instance creates and destroys MIG partitions through NVML: GPU instances and the
// compute instances in them. It reads the profiles of a GPU, and switches its MIG mode.
//
// create.go, destroy.go and instances.go do what claims ask for, switch.go what profiles
// ask for. mode.go is the MIG mode that both need. What a GPU offers, given its profiles, is
// decided in pkg/hardware/mig.
package instance
