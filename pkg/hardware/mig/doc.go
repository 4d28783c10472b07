// Package mig is the arithmetic of NVIDIA's Multi-Instance GPU: which
// placements a GPU offers, in which order, and which counters keep them apart
// (placements.go, counters.go), and what its profiles are called (names.go).
//
// It is pure: what NVML says about a GPU goes in, pkg/gpu comes out. Programs without
// hardware can use it, too.
package mig
