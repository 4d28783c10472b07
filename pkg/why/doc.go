// Package why explains why a pod does not run: what it requests, and what prevents it on each node
// with GPUs.
//
// Explain, ExplainOwner and ExplainAbsence derive an explanation from API objects that the caller
// reads. pkg/picture draws it. pkg/why/fit evaluates the nodes.
//
//   - model.go: input and explanation of a pod
//   - explain.go: pods that have a node; running.go: pods that run, and do not have what they ask for;
//     unscheduled.go: pods without a node; claims.go: their claims and volumes; template.go: templates that
//     the controller creates; absent.go: pods that do not exist
//   - owner.go, ownerclaim.go, ownerfacts.go, ownermodel.go: jobs, other owners and ResourceClaims
//   - kueue.go: Workloads; quota.go: ResourceQuotas; quotes.go: events and conditions
//   - unread.go: what an explanation lacks because objects could not be read
//
// Everything is pure.
package why
