// Package usage is how much GPUs, their partitions and the pods on them use, by what the kubelet
// plugins' /metrics say. What a plugin does not say is nil, and not zero.
//
// metrics.go reads an answer, and usage.go groups it by GPUs and sums it up by pods; both are pure.
// scrape.go asks the plugins through the API server, with the rights of whoever asks, and direct.go
// at the addresses of their pods.
package usage
