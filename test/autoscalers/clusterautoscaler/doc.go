// Package clusterautoscaler computes a node's utilization as cluster-autoscaler documents it
// (kubernetes/autoscaler, cluster-autoscaler/docs/dra_support.md, section "Node
// consolidation"), because its module cannot be downloaded from the Go module proxy.
package clusterautoscaler
