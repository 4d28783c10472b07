// Package rollout decides which nodes may be switched now: those of PartitionPlans, step by
// step, and those of profiles without a plan. It is pure.
//
// node.go has what is known of a node, tally.go counts the nodes of a rollout, admit.go admits
// nodes in their order. plan.go and revision.go advance the status of a plan, conditions.go
// describes it, window.go has the times at which nodes may start.
//
// What was admitted is in the GPUNodes: status.desired has the new profile. So a controller
// that starts finds out everything again. At most maxFailures + maxUnavailable nodes of a
// rollout are ever outside both their old and their new state: a node is admitted only if no
// more than maxFailures have failed, and fewer than maxUnavailable are on their way.
package rollout
