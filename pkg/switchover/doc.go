// Package switchover is the controller: it brings nodes to the partition profiles
// that administrators want, one or a few at a time, without losing a pod's budget,
// a taint, or what was there before.
//
// It imports api/v1alpha1 and names of pkg/gpu, and nothing that knows hardware:
// the node's plugin does. Both speak through the GPUNode.
package switchover
