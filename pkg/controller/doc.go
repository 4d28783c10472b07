// Package controller switches nodes to the desired PartitionProfiles, a few at a time. It
// respects PodDisruptionBudgets, and rolls back what fails.
//
// Package state decides the next step of a node, package drain evicts pods. This package
// connects them to the API server: reconciler.go performs steps, facts.go collects what the
// state machine needs, nodetaint.go sets the taint of the Node and the labels that pause
// monitoring pods, events.go reports changes, startup.go removes the start-up taint of new nodes. Package
// plans admits nodes, and plans.go calls it. memory.go has what the controller keeps in memory and
// finds out again after a restart. chartprofiles.go creates the PartitionProfiles of the chart.
// serverclock.go follows the clock of the API server. setup.go adds everything to a manager.
//
// The node's plugin publishes device taints in its ResourceSlices, as the Switch of the
// GPUNode orders. The taint and labels of the Node follow from the state of the GPUNode alone.
// They are set after the state is written and removed before, so a controller that starts at
// any time knows what can be there.
//
// Plugin and controller communicate through the GPUNode.
package controller
