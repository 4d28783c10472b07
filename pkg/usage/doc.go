// Package usage is how much GPUs, their partitions and the pods on them use, by what the kubelet
// plugins' /metrics say. What a plugin does not say is nil, and not zero.
//
// Everything is pure.
package usage
