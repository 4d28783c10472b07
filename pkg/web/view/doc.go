// Package view decides what the web page shows: the fleet as a heat map, one node, one GPU,
// rollouts and switches, and what fits now.
//
// A Snapshot is what is known of the cluster at a time, with all names. A Viewer is what a user
// may see of it. Node, Overview, Waiting and Rollouts answer for one Viewer.
//
// Everything is pure but Viewer.Learn, which asks what the user may list.
package view
