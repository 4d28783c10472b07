// Command packing replays workloads on a simulated fleet of nodes with 8 × H100 and compares
// policies for the choice of node, GPU and position. The nodes are published as the plugin
// publishes them, and the scheduler's allocator chooses their devices.
//
// derive.go makes the table of the trace, workload.go has the workloads, layout.go the
// allocator's answers, fleet.go the nodes, policy.go, scheduler.go and search.go the policies,
// reserve.go more policies, moves.go moves pods, bound.go has the bound, replay.go the replay,
// report.go what is printed, and plot.go the plots.
package main
