// Package state is the state machine of a node's switch: from a GPUNode and facts it computes
// the next status and what to do. It is pure.
//
// choice.go chooses the desired profile. machine.go and states.go have the transitions, report.go
// reads the changes that the plugin reports, blocked.go handles pods that cannot be evicted,
// ending.go ends switches, conditions.go describes them, and questions.go has what others ask of a
// status.
package state
