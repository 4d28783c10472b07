// Package node is the kubelet plugin: it connects GPUs, ResourceSlices and claims to the
// kubelet and the API server. The packages below it each do one part of the work.
//
// node.go starts and stops everything. It connects what all parts need (base.go), the claims, the
// monitor and the follower of package follow.
//
// The claims (claims.go): holders.go finds the claims that hold devices, offered.go what can be
// prepared, reconcile.go removes what no claim needs, daemons.go restarts MPS daemons, and usage.go
// measures how much the GPUs are used.
//
// The monitor (monitor.go) checks the GPUs: look.go which there are, silent.go those whose driver
// cannot be used, desired.go how they are shared, health.go their health, obstacles.go what cannot be
// allocated now. failures.go taints devices that could not be prepared, and tries them again.
// hardwarereport.go and reportsocket.go answer `tranche-kubelet-plugin hardware`.
//
// upgrade.go releases a driver that is being replaced. server.go serves metrics and health, labels.go
// the node's labels, resources.go its resources. uninstall.go and leave.go remove everything from the
// node when Tranche is uninstalled.
package node
