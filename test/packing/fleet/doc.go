// Package fleet has nodes with 8 × H100 and what claims hold on them. The nodes are published as
// the plugin publishes them, and the scheduler's allocator chooses their devices.
//
// layout.go has the allocator's answers for each state of a GPU, fleet.go the nodes,
// fragmentation.go how much of what is free is of no use.
package fleet
