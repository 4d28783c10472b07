// Package publish computes ResourceSlices from GPUs, their taints and the node's name. It is
// pure and deterministic, so that a restart on unchanged hardware writes nothing.
//
// publish.go computes the slices, attributes.go and share.go the properties of devices. check.go
// finds what the API server would refuse, digest.go compares slices, and objects.go makes API
// objects without an API server.
package publish
