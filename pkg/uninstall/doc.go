// Package uninstall removes Tranche from a cluster, in an order that leaves nothing behind and takes
// no GPU from a pod.
//
// A hook of the chart calls [Run] before Helm deletes anything. Run refuses while pods hold GPUs
// (holders.go). Otherwise it orders the plugins to clean up, with a ConfigMap that they watch
// (names.UninstallRequest). They remove the partitions of profiles and delete their ResourceSlices, and Run
// waits until none is left. A plugin removes its files from the node when Helm ends it.
//
// Then Run stops the controller and the second scheduler (stop.go), and removes the taints that the
// controller has set on GPUs and nodes, the GPUNodes, and the Leases (leftovers.go).
//
// `kubectl tranche uninstall` runs [Remove] (remove.go), which also deletes the
// workloads, for tools that run no hooks. [Check] (check.go) says what is in the
// cluster and whether Run would refuse.
package uninstall
