// Package hardwarereport is what `tranche-kubelet-plugin hardware` prints: who owns the
// partitions of a node's GPUs, and what cannot be allocated now and why. nvidia-smi and
// amd-smi cannot tell that.
//
// The plugin serves the report on a Unix socket, and the command, in the same pod, prints it
// (socket.go).
package hardwarereport
