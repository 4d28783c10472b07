// Package share prepares GPUs that several claims hold at once.
//
// sharer.go sets the GPU, daemon.go says which MPS daemon serves a holder and which
// limits it sets, edits.go is what containers get of it, and check.go finds daemons
// that have died.
//
// Imports: pkg/claim, pkg/claim/ledger, pkg/gpu, pkg/hardware/mps.
package share
