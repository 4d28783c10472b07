// Package xcp is the arithmetic of AMD's compute partitions ("accelerator
// complex partitions"): which modes a chip can be in and how it then divides
// (modes.go), how much memory each piece gets (memory.go), which placements a
// GPU offers, in which order, and which counters keep them apart (devices.go,
// counters.go).
//
// It is pure: what the driver says about a GPU goes in, pkg/gpu comes out. Programs
// without hardware can use it, too.
package xcp
