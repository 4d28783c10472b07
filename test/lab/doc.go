// Package lab is a whole cluster for tests, without containers: a real API server with etcd, the
// real scheduler and the controllers of Kubernetes that claims and pods need, the chart, the
// kubelet plugin of each node on a simulated machine, and the controller. Plugins and controller
// run in this process with the rights of the chart's service accounts, and the chart's admission
// policies apply to what they write. A small kubelet takes the place of the nodes' own: it
// prepares the claims of pods, says that pods run, and ends them (kubelet.go). Pods run nothing.
//
// A [Cluster] serves one test after another, and its nodes stay. Tests that run at once have a cluster
// each.
package lab
