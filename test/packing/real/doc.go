// Command real fills nodes with pods by the real kube-scheduler, once for each way to keep pods
// with partitions together, and prints how many GPUs and nodes they open and what that costs. It
// needs root, for the API servers that it starts (test/cluster). Nodes are objects only, with
// the slices that the plugin publishes for 8 × H100.
//
// ways.go has the ways, pods.go the pods, used.go the attribute of used GPUs, fill.go the
// measurement, main.go the flags and the table.
package main
