// Package plans keeps PartitionPlans: it collects what is known of nodes and plans, has package
// rollout decide, writes the status of the plans, and tells the reconciler of the nodes which of
// them may begin.
//
// keeper.go has the decisions, nodes.go the nodes and the plans that select them, ask.go what
// the reconciler of nodes asks, write.go the status and the events.
package plans
