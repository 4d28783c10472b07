// Package e2e tests Tranche on a real cluster: real scheduler, kubelet and
// containerd, simulated GPUs underneath.
//
// test/e2e.sh starts clusters and runs the tests on them, several at a time. To run
// some of them on a cluster that is up (KEEP=1 leaves them up):
//
//	TRANCHE_E2E_CLUSTER=$PWD/.cluster-e2e-0 go test -count=1 ./test/e2e -run Demo
//
// A test begins with start, which gives it a namespace, and the release the values that the test
// needs: for almost all, the same (values_test.go). At the end it checks that nothing of the test
// is left on any node. On one cluster the tests run one after the other, because they look at all
// of the nodes' GPUs.
package e2e
