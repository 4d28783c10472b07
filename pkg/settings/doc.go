// Package settings is what administrators want of the cards of a node: who
// shares them and how, and what old resource names mean. It reads
// PartitionProfiles and the configuration files of NVIDIA's device plugin,
// strictly, and says for each card what holds.
//
// It may import the vocabulary (pkg/gpu), the API types and the readers of other
// formats (pkg/compat).
package settings
