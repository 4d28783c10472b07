// Package cluster is the model of a cluster for `kubectl tranche`: pools, GPUs, devices,
// counters, holders, free capacity, and the progress of each node with its profile.
//
// New builds the model from API objects. Cluster.Summary is what `kubectl tranche` shows and
// prints as JSON. pkg/why/fit reads the Cluster itself, because it needs every device. ProgressOf
// describes one GPUNode.
//
// The package does not depend on vendors: the positions of a GPU are its counters
// memory-slice-0, -1, …, and a device takes the positions that it consumes. A GPU without such
// counters has as many positions as its smallest partitions need. A device of an unknown type
// keeps its name.
//
// Everything is pure.
package cluster
