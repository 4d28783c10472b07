// Package rollout decides which nodes may be switched now: those of PartitionPlans, step by
// step, and those without a plan. It also forecasts what a plan would do. It is pure.
//
// node.go has what is known of a node, tally.go counts the nodes of a rollout, admit.go admits
// nodes in their order. selection.go says which plan selects a node. plan.go and revision.go
// advance the status of a plan, conditions.go describes it, window.go has the times at which nodes
// may start. forecast.go and forecastduration.go are for `kubectl tranche plan`.
//
// Who was admitted is in status.admittedHash of the GPUNodes, so a controller that starts finds out
// everything again. At most maxFailures + maxUnavailable nodes of a rollout are ever outside both
// their old and their new state: a node is admitted only if no more than maxFailures have failed,
// and fewer than maxUnavailable are switching.
package rollout
