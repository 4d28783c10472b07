// Package policy has ways to choose node, GPU and position for a claim.
//
// policy.go lists them, scheduler.go does what kube-scheduler does, reserve.go keeps GPUs for
// whole-GPU claims, and search.go looks at every position of a fleet.
package policy
