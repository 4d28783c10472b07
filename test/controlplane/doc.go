// Package controlplane runs an API server with etcd on this machine (test/cluster) and programs
// of the control plane beside it, and reads what they use. For measurements: nodes are objects
// only, and pods are bound but never start. No controller runs unless it is started.
//
// It may import the Kubernetes API and its client.
package controlplane
