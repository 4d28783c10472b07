// Package layout finds where on a GPU a set of partitions fits.
//
// It is pure and imports pkg/gpu only. What fits together is decided by the GPU's
// counters, as the scheduler decides it.
package layout
