// Package allocation is what kube-scheduler tells its allocator of DRA devices: the
// features of stock Kubernetes, the device classes, and what claims hold.
//
// Imports: none.
package allocation
