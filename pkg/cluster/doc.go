// Package cluster is the model of a cluster as `kubectl tranche` sees it: what the
// API server knows of GPUs, put together into pools, GPUs, devices, counters,
// holders, what still fits, and how far each node is with its profile.
//
// New builds the model from API objects. Cluster.Summary is what `kubectl tranche`
// shows and prints as JSON; pkg/why reads the Cluster itself, since it needs every
// device. ProgressOf describes one GPUNode.
//
// The package knows GPUs by their counters, not by their vendor: the positions of a
// GPU are its counters memory-slice-0, -1, …, and a device takes the positions that it
// consumes. A GPU without such counters has as many positions as its finest partitions
// need. A device of an unknown type keeps its own name.
//
// Everything is pure.
//
// Imports: api/v1alpha1, pkg/allocation, pkg/gpu, pkg/publish, pkg/text.
package cluster
