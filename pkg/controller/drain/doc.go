// Package drain finds who holds devices of the GPUs that change, and has them leave: the
// claims and pods of a node, dry runs of their evictions, and evictions.
//
// It decides neither which GPUs change nor when pods are asked; pkg/controller does.
//
// Imports: api/v1alpha1, pkg/gpu, pkg/text.
package drain
