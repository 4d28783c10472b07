// Package state is the state machine of a node's switch: which profile the node should
// follow, what comes next on the way there, and what people are told of it. It is pure:
// GPUNode and facts in, new status and what to do out.
//
// choice.go says which profile is desired, machine.go and states.go what comes next, plan.go
// what the plugin's plans come to, blocked.go what happens when a pod cannot leave,
// ending.go how a switch ends, conditions.go what people are told.
//
// Imports: api/v1alpha1, pkg/controller/drain, pkg/profile, pkg/text.
package state
