// Package nodewatch watches the node that the kubelet plugin runs on: the Node object, which
// can request the upgrade of a driver, and other systems that use its GPUs.
//
// nodewatch.go watches the object, labels.go writes its labels. owners.go and watchowners.go
// find other systems that serve the same GPUs, processes.go their programs. runningpods.go
// finds the pods whose processes run.
package nodewatch
