// Package defrag plans how a waiting pod gets room by moving few other pods.
//
// A plan is proven with the scheduler's allocator: without the moved pods, the waiting pod gets
// certain devices of one node, and every moved pod has a place elsewhere before anything is
// released. Devices that overlap the wanted ones must be tainted until the waiting pod has them. The
// wanted ones stay untainted: most pods that could take them wait for the same.
//
// input.go has what is known, waiting.go and pods.go describe pods, room.go says where they fit, search.go
// whom to move, prove.go the proof, refusal.go why there is no plan.
//
// Everything is pure.
//
// Imports: api/v1alpha1, pkg/allocation, pkg/cluster, pkg/gpu, pkg/why/demand.
package defrag
