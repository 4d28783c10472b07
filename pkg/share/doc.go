// Package share is what several claims hold at once: which share devices a GPU
// has, and what their holders find.
//
// devices.go is pure: GPU and settings in, placements out. sharer.go is what
// claims are prepared with: it sets the GPU, and daemon.go says which MPS daemon
// serves a holder and what it keeps it to. edits.go is what containers get of it,
// and check.go finds daemons that have died.
//
// Imports: pkg/claim, pkg/claim/ledger, pkg/gpu, pkg/hardware/mps, pkg/profile.
package share
