// Package defragment makes room for waiting pods by moving other pods, if the administrator enables
// it and the labels of these pods or of their namespaces allow it.
//
// One attempt runs at a time, in the whole cluster. Package defrag plans it. The plugin of the node
// taints the devices that overlap the planned ones, so that no other pod takes them. Then the plan
// is proven again and its evictions are dry-run. Only after that pods are evicted, one after another,
// through the Eviction API. Each step is written to the GPUNode before it is carried out, so that
// another controller can continue. If none does, the plugin ends the reservation at the deadline.
//
// setup.go adds everything to a manager, search.go chooses waiting pods and nodes, read.go reads what a
// plan depends on, attempt.go begins and ends attempts, reserve.go waits for the taints, evict.go
// evicts pods and waits for their replacements, and report.go has events and metrics.
package defragment
