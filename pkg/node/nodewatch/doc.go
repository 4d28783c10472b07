// Package nodewatch watches the node that the kubelet plugin runs on: its object, which may
// ask for the upgrade of a driver, and who else uses its GPUs.
//
// nodewatch.go watches the object, labels.go keeps its labels. owners.go and watchowners.go
// find other systems that serve the same GPUs, processes.go their programs, runningpods.go
// the pods of which processes run.
//
// Imports: api/v1alpha1, pkg/claim/ledger, pkg/gpu, pkg/hardware.
package nodewatch
