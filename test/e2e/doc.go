// Package e2e tests Tranche on whole clusters with simulated GPUs. Most tests run in a laboratory
// (test/lab): a cluster in the test's process, where pods run nothing. Those that need containers,
// the kubelet itself, Helm upgrades or the real processes of Tranche run on real clusters:
// test/e2e.sh starts clusters and runs these tests on them, several at a time. To run some of them,
// of either kind, on a cluster that is up (KEEP=1 leaves them up):
//
//	TRANCHE_E2E_CLUSTER=$PWD/.cluster-e2e-0 go test -count=1 ./test/e2e -run Demo
//
// A test begins with start or startOnCluster, which give it a namespace. On real clusters the
// release has the values that the test needs: for almost all, the same (values_test.go). At the end
// a test checks that nothing of it is left on any node. The tests on one cluster run one after the
// other, because they look at all of the nodes' GPUs.
package e2e
