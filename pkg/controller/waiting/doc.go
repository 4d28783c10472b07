// Package waiting tells pods that stay Pending because of their claims why: by an event on the
// pod, written again only when the answer changes.
//
// A pod is looked at when it has waited for a while, and again when something about its claims
// changes; no pod is polled. Pods that ask for the same are one shape. A node is read when its claims,
// slices, taints or switch change, once for all shapes, and not for those that have room elsewhere.
//
// The rest of the controller is more important. So there are few shapes in all and for each namespace,
// one that takes long is parked, judging takes half of a processor at most, all calls to the API server
// together are limited by the second, and namespaces take turns when events are written.
//
// memory.go, shape.go, fleet.go and news.go have what is known, pods.go and nodes.go reconcile,
// outbox.go and tell.go write events, setup.go adds everything to a manager. pkg/why decides.
package waiting
