// Package controller is the controller: it brings nodes to the partition profiles
// that administrators want, one or a few at a time, without losing a pod's budget,
// a taint, or what was there before.
//
// What comes next for a node, state decides, and who holds GPUs and how pods leave is in
// drain. This package ties them to the API server: reconciler.go takes the steps, facts.go
// collects what the state machine asks for, posture.go puts in force what a state needs
// on the Node, with the labels that pause clients; budget.go and remember.go have what a
// controller knows besides, and finds out again when it starts. serverclock.go has the
// time as the API server has it. setup.go connects it all to an API server.
//
// The taints of devices are published by the node's plugin, in its ResourceSlices, as the
// GPUNode's Switch orders them. What is in force on the Node (its taint, paused clients)
// follows from the GPUNode's state alone. It grows after the state was written and
// shrinks before, so that a controller that starts at any point knows what there can be.
//
// Plugin and controller speak through the GPUNode.
//
// Imports: api/v1alpha1, pkg/controller/drain, pkg/controller/state, pkg/gpu, pkg/publish, pkg/text.
package controller
