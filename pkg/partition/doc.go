// Package partition applies profiles to the GPUs of a node: MIG modes, static partitions,
// AMD's compute and memory modes.
//
// choose.go resolves a profile to the layout of each GPU; pkg/profile computes the changes.
// execute.go changes the GPUs under their locks and reads them back. journal.go records what is
// applied, and what is about to change; state.go keeps it in a file. restore.go reapplies a
// profile after a reboot, clear.go removes all partitions for an uninstallation. The plugin uses
// Node, in node.go.
package partition
