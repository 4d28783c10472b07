// Package apiserver runs the plugin and the controller in one process on a simulated
// machine, against a real API server: kube-apiserver and etcd, without anything else of a
// cluster. The test is the scheduler, the kubelet and the garbage collector.
//
// KUBEBUILDER_ASSETS names the folder of the two programs (make test-unit sets it). The
// tests are skipped without it.
package apiserver
