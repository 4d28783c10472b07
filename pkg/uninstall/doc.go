// Package uninstall removes Tranche from a cluster, in an order that leaves nothing behind and takes
// no GPU from a pod.
//
// [Run] is called by a hook of the chart before Helm deletes anything, and by `kubectl tranche
// uninstall` for tools that run no hooks. It refuses, and changes nothing, while pods hold GPUs, GPUs
// are being changed, or a plugin does not work (refuse.go, holders.go). Otherwise it deletes the
// controller and the second scheduler, and what the controller has left on nodes and in the cluster
// (leftovers.go). Then it deletes the DaemonSet in the foreground: a plugin whose DaemonSet is being
// deleted removes the partitions of profiles, its ResourceSlices and its files when it ends, and Run
// waits for that. Each step can be repeated.
//
// [Check] (check.go) says what is in the cluster and whether Run would refuse. objects.go reads and
// deletes objects of any kind.
package uninstall
