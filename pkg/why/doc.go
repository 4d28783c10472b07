// Package why explains why a pod does not run: what it requests, and for every node with GPUs
// what prevents it.
//
// Explain, ExplainOwner and ExplainAbsence make an explanation from API objects, which the caller reads.
// pkg/picture draws it, and pkg/why/fit judges the nodes.
//
// model.go is what a pod's explanation is made of and what it says, explain.go explains pods that have a node,
// unscheduled.go those that wait for one, claims.go what they wait for beside nodes, template.go
// templates that the controller would create, absent.go pods that do not exist. The files that
// begin with owner explain jobs, other owners and ResourceClaims. kueue.go reads Workloads of Kueue,
// quota.go ResourceQuotas, quotes.go what components of Kubernetes say, and unread.go says what an answer
// lacks because something could not be read.
//
// Everything is pure.
package why
