// Package state is the state machine of a node's switch: from a GPUNode and facts it computes
// the next status and what to do. It is pure.
//
// choice.go chooses the desired profile, tools.go knows the node labels of other projects.
// machine.go and states.go have the transitions, plan.go
// evaluates the plugin's plans, blocked.go handles pods that cannot be evicted, ending.go ends
// switches, and conditions.go describes them.
package state
