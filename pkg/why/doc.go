// Package why tells why a pod does not run, in words for whoever is woken by it:
// what it asks for, and for every node with GPUs what is in the way.
//
// It judges nothing by rules of its own where Kubernetes has them: selectors are
// evaluated by the CEL of the scheduler, and whether a pod fits on a node is
// asked of the scheduler's own allocator. What is added is the reason, from
// counters, taints and holders.
//
// Explain and ExplainAbsence make an Explanation of API objects; pkg/picture draws it.
// Reading the API server is the caller's affair.
//
// Imports: api/v1alpha1, pkg/allocation, pkg/cluster, pkg/gpu, pkg/text,
// pkg/why/demand.
package why
