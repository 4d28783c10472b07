// Package allocator runs the scheduler's own allocator over ResourceSlices in
// memory, with the features that stock Kubernetes 1.37 enables: what it grants
// is what a cluster would grant. For tests and benchmarks.
//
// It may import the Kubernetes API, the allocator, pkg/allocation and pkg/publish only.
package allocator
