// Package waiting tells pods that stay Pending because of their claims why: by an event on the
// pod, written again only when the answer changes.
//
// A pod is looked at when it has waited for a while, and again when something about its claims
// changes; no pod is polled. Pods that ask for the same share their answers, which are kept for
// each node. A node is read again when its claims, slices, taints or switch change, and not as
// long as another node has room. All calls to the API server together are limited by the second.
//
// memory.go has what is known, pods.go and nodes.go reconcile, tell.go writes events, setup.go
// adds everything to a manager. pkg/why decides.
//
// Imports: api/v1alpha1, pkg/controller/drain, pkg/gpu, pkg/text, pkg/why, pkg/why/demand.
package waiting
