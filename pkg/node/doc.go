// Package node is the kubelet plugin: it connects GPUs, ResourceSlices and claims to the
// kubelet and the API server. The packages below it each do one part of the work.
//
// node.go starts and stops everything. openhardware.go opens the drivers, upgrade.go releases a driver that is being replaced, silent.go handles
// GPUs whose driver cannot be used. look.go checks the GPUs at intervals, health.go their
// health, obstacles.go what cannot be allocated now. failures.go taints devices that could not
// be prepared, and tries them again.
//
// desired.go reads the desired sharing of the GPUs, profile.go the profile of the node.
// daemons.go restarts MPS daemons. holders.go finds the claims that
// hold devices, reconcile.go removes what no claim needs, usage.go measures how much the GPUs
// are used. uninstall.go and leave.go remove everything from the node when Tranche is uninstalled.
package node
