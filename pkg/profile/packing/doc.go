// Package packing finds positions for a set of partitions on a GPU. Like the scheduler, it decides by
// the counters of the GPU what fits together. It is pure.
package packing
