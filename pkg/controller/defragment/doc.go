// Package defragment makes room for waiting pods by moving others, if the administrator turns that
// on and the pods' namespaces or labels allow it.
//
// One pod at a time gets room, in one cluster. Package defrag proves a plan; the plugin of the node
// taints the devices that overlap the wanted ones, so that nobody else takes the room. Then the plan is
// proven again and its evictions are dry-run. Only after that pods are evicted, through the Eviction
// API. Each step is written to the GPUNode first, so that a new controller continues from there; if none
// does, the plugin ends the reservation at the deadline.
//
// setup.go adds everything to a manager, look.go finds a pod and a plan, attempt.go carries the plan
// out, read.go reads what planning needs, and tell.go reports.
//
// Imports: api/v1alpha1, pkg/cluster, pkg/controller/drain, pkg/defrag, pkg/gpu, pkg/text.
package defragment
