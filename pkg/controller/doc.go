// Package controller is the controller: it brings nodes to the partition profiles
// that administrators want, one or a few at a time, without losing a pod's budget,
// a taint, or what was there before.
//
// wish.go says which profile a node should follow, machine.go and its neighbours
// what comes next on the way there, plan.go what the plugin's plans come to, blocked.go
// what happens when a pod cannot leave, conditions.go what people are told. They are
// pure. What a state needs on the Node, posture.go puts in force, with the labels that
// pause clients; facts.go collects what the machine asks for; budget.go and remember.go
// have what a controller knows besides, and finds out again when it starts.
// serverclock.go has the time as the API server has it. reconciler.go ties them together;
// setup.go connects them to an API server. Who holds GPUs, and how pods leave, is in drain.
//
// The taints of devices are published by the node's plugin, in its ResourceSlices, as the
// GPUNode's Switch orders them. What is in force on the Node (its taint, paused clients)
// follows from the GPUNode's state alone. It grows after the state was written and
// shrinks before, so that a controller that starts at any point knows what there can be.
//
// Both speak through the GPUNode.
//
// Imports: api/v1alpha1, pkg/controller/drain, pkg/gpu, pkg/profile, pkg/publish, pkg/text.
package controller
