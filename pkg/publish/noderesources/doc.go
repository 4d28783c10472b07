// Package noderesources has the resources of a node that let the scheduler skip nodes whose GPUs are
// full without looking at their devices: GPU memory and GPU compute.
//
// Both are necessary conditions only. A node has at least what all devices that can be held at
// once take, and a pod requests at most the least that its claims can end with.
//
// amount.go has what GPUs give and devices take, claims.go what claims take at least, and
// catalog.go the devices of all known models.
package noderesources
