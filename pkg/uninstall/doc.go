// Package uninstall removes Tranche from a cluster without leaving anything behind, and without taking
// GPUs from pods.
//
// [Run] is called by a hook of the chart before Helm deletes anything, and by `kubectl tranche
// uninstall` for tools that run no hooks. It refuses, and changes nothing, while pods hold GPUs, GPUs
// are being changed, or a plugin does not work (refuse.go, holders.go). Otherwise it deletes the
// controller and the second scheduler, and then taints, labels and objects of the controller
// (leftovers.go). Then it deletes the DaemonSet in the foreground: a plugin whose DaemonSet is being
// deleted removes the partitions of profiles, its ResourceSlices and its files when it ends, and Run
// waits for that. Each step can be repeated.
//
// [Check] (check.go) prints what is in the cluster and whether Run would refuse. objects.go reads and
// deletes objects of any kind.
package uninstall
