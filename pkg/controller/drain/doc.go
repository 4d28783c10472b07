// Package drain finds the claims and pods that hold devices of GPUs that change, and evicts
// the pods, after a dry run.
//
// Package controller decides which GPUs change and when pods are evicted.
package drain
