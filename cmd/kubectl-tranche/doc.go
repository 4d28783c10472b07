// Command kubectl-tranche is a kubectl plugin that draws the GPUs of a cluster:
// how each is partitioned, who holds which piece, and what still fits. `why POD` explains why
// a pod that wants a piece does not run, `templates` what a node with certain GPUs
// will publish.
//
// It needs nothing but the API server, and `templates` not even that: no plugin of
// ours has to run, and no right but to list ResourceSlices. Whatever else it may
// read makes the picture richer. This folder parses flags and knows the terminal;
// objects are read by pkg/cluster/read, what is drawn is decided in pkg/picture, what is
// said in pkg/why, what is published in pkg/publish. It is built without cgo, so
// nothing here may import NVML.
//
//   - command.go: the command, its flags, and what all subcommands share
//   - list.go, read.go: objects that several subcommands read
//   - show.go, watch.go: kubectl tranche, also with --watch
//   - document.go: what -o json and -o yaml print; exit.go: exit codes
//   - advice.go: who grants what the API server refused; help.go: help pages, unknown commands
//   - report.go, reportread.go: what a bug report needs
//   - wait.go: waiting for an object, used by set-profile and rollout status
//   - complete.go: names for the shell
//   - the others: a subcommand, or a part of it, each
package main
