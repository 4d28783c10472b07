// Command real has the real kube-scheduler place claims, once for each policy to keep pods with
// GPUs together. It needs root, for the API servers that it starts (test/cluster). Nodes are
// objects only, with the slices that the plugin publishes for 8 × H100.
//
// It does so twice: fill.go makes pods at once on empty nodes, replay.go replays a workload.
// policies.go has the policies, cluster.go starts clusters, pods.go has the pods, used.go the
// attribute of used GPUs, main.go the flags and the table.
package main
