// Package publish turns GPUs into ResourceSlices.
//
// It is pure: GPUs, taints and the node's name in, slices out, always the same
// for the same input, so that a restart on unchanged hardware writes nothing.
// objects.go makes whole API objects of them, for those who have no API server.
//
// Imports: pkg/gpu.
package publish
