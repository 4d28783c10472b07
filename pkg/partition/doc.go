// Package partition brings the GPUs of a node into the shape that a profile wants:
// MIG modes, partitions that stay, AMD's compute and memory modes.
//
// plan.go (with planmig.go and planmodes.go) says what has to change, and touches
// nothing; there it is decided what changes the hardware and what only changes what is
// published. choose.go has what a profile comes to on the node's GPUs. execute.go
// changes them under their locks and reads them back; intent.go has written down before
// what is about to change. restore.go puts back what a reboot has taken, clear.go
// takes everything away for a driver that goes for good. node.go is what the plugin
// works with.
//
// Imports: api/v1alpha1, pkg/claim/ledger, pkg/durable, pkg/gpu, pkg/profile.
package partition
