// Package mig is the arithmetic of NVIDIA's Multi-Instance GPU: which
// placements a GPU offers, in which order, and which counters keep them apart
// (cuts.go, counters.go), and what its profiles are called (names.go).
//
// It is pure: what NVML says about a GPU goes in, pkg/gpu comes out. It
// imports nothing else of ours and needs no NVML, so that programs without
// hardware can use it too.
package mig
