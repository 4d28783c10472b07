// Package e2e tests Tranche on a real cluster: real scheduler, kubelet and
// containerd, simulated GPUs underneath.
//
// test/e2e.sh starts the cluster and runs the tests. To run some of them on a
// cluster that is up (node-a with h100x8, node-b with l4x4, node-c with mi300x8):
//
//	TRANCHE_E2E_CLUSTER=$PWD/.cluster-e2e go test -count=1 ./test/e2e -run Demo
//
// A test begins with start, which gives it a namespace and checks at the end
// that nothing of it is left on any node. The tests run one after the other,
// because they look at all of the nodes' GPUs.
package e2e
