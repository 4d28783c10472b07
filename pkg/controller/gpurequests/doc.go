// Package gpurequests keeps the GPUResourceMap of each namespace whose pods get requests for GPU memory
// and compute. An admission policy of the chart reads it and adds the requests to pods.
//
// An amount is the least that a claim can end with, on any node (package noderesources). What the
// controller does not know yet adds nothing: such a pod costs the scheduler time and runs as well.
//
// reconciler.go decides for one namespace, extended.go for extended resources, setup.go adds it to a
// manager.
package gpurequests
