// Command kubectl-tranche is a kubectl plugin that draws the GPUs of a cluster:
// how each is partitioned, who holds which piece, and what still fits. `why POD` tells why
// a pod that wants a piece does not run, `templates` what a node with certain GPUs
// will publish.
//
// It needs nothing but the API server, and `templates` not even that: no plugin of
// ours has to run, and no right but to list ResourceSlices. Whatever else it may
// read makes the picture richer. This folder parses flags, reads the API server
// and knows the terminal; what is drawn is decided in pkg/picture, what is said
// in pkg/why, what is published in pkg/publish. It is built without cgo, so
// nothing here may import NVML.
package main
