// Command packing replays workloads on a simulated fleet of nodes with 8 × H100 and compares
// policies for the choice of node, GPU and position.
//
// workload has the claims, fleet the nodes, policy the policies, replay plays and measures,
// report prints and draws, and real does the same as this command with the real scheduler. options
// has what their flags share. run.go here replays all cases.
package main
