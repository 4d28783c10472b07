// Package defrag plans which pods to move so that a waiting pod fits on a node.
//
// The scheduler's allocator proves a plan: without the moved pods, the waiting pod gets certain
// devices of one node, and each moved pod fits elsewhere before anything is released. The devices
// that overlap the planned ones must be tainted until the waiting pod is scheduled. The planned
// ones stay untainted: most pods that could take them wait for the same devices.
//
// planner.go has the input and prepares it, nodeinfo.go and podinfo.go describe nodes and pods,
// waiting.go the waiting pod, movable.go says which pods may be moved, allocate.go calls the
// allocator, search.go finds pods to move, prove.go and check.go prove a plan, refusal.go says why
// there is none, and advice.go is the output of `kubectl tranche defrag`.
//
// Everything is pure.
package defrag
