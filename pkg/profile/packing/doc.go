// Package packing finds where on a GPU a set of partitions fits.
//
// What fits together is decided by the GPU's counters, as the scheduler decides it. It is
// pure.
//
// Imports: pkg/gpu.
package packing
