// Package workload has the claims that are replayed: Alibaba's trace and synthetic mixes.
//
// kind.go says what claims ask for, trace.go reads the table of the trace, workload.go has the mixes
// and makes claims arrive.
//
// It imports nothing of this module.
package workload
