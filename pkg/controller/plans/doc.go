// Package plans decides PartitionPlans and admits nodes: it collects what is known of nodes and
// plans, has package rollout decide, and writes the status of the plans and status.admittedHash of the
// GPUNodes. The reconciler of the nodes reads that.
//
// decider.go has the decisions, nodes.go the nodes and the plans that select them, write.go the
// status and the events of plans, admission.go status.admittedHash and what the reconciler of nodes
// asks, assumed.go what the caches may not have yet.
package plans
