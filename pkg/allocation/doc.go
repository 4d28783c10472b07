// Package allocation is what kube-scheduler tells its allocator of DRA devices: the
// features of stock Kubernetes, the device classes, and what claims hold. It evaluates
// selectors with the same CEL.
package allocation
