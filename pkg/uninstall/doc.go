// Package uninstall takes Tranche off a cluster in an order in which nothing is
// left behind and no pod loses its GPU.
//
// A hook of the chart runs [Run] before Helm deletes anything: it refuses while
// pods hold GPUs (holders.go), and otherwise orders the plugins to clean up,
// with a ConfigMap (order.go) that they watch. They remove the partitions that
// profiles made and withdraw what they publish, and Run waits until nothing is
// published any more. What a plugin has put on its node it removes when Helm
// ends it.
//
// Then it stops the controller (controller.go) and takes away what that has put on
// GPUs and nodes, the GPUNodes (leftovers.go), and its lease (lease.go).
//
// `kubectl tranche uninstall` runs [Remove] (remove.go), which also deletes the
// workloads, for tools that run no hooks. [Check] (check.go) says what is in the
// cluster and whether Run would refuse.
//
// Imports: api/v1alpha1, pkg/client, pkg/gpu.
package uninstall
