// Package share sets up shares: devices that several claims can hold. Package offer below it
// computes which shares a GPU has.
//
// sharer.go changes the settings of GPUs for claims, daemon.go configures their MPS daemons,
// edits.go describes shares to containers. check.go finds daemons that have died.
package share
