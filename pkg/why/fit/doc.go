// Package fit judges nodes: whether the devices that a pod demands fit on a node, and the reason if they do
// not.
//
// Selectors are evaluated by the scheduler's CEL, and the scheduler's allocator decides whether a demand
// fits. This package adds the reason, from counters, taints and holders.
//
// A Verdict is the result; verdict.go has the message, the event and the remedy of each, and result.go what is
// said about a node. demand.go, request.go, volumes.go and others.go find what a pod demands, asks.go says it, and
// shared.go compares it with what other pods demand. model.go is the cluster that nodes are judged in,
// node.go judges a node, supply.go counts its devices for a request, with shares.go and modes.go for shared devices
// and AMD's modes, and allocate.go asks the allocator. exclude.go has what keeps a pod off a node beside devices,
// switches.go the part that switches of profiles have in it, and remedies.go what a person can do.
//
// Everything is pure.
package fit
