// Package drivers makes one of the drivers of all vendors on a node: what is asked about a
// GPU goes to the driver that serves it.
//
// set.go asks the right driver, modes.go changes modes for profiles, gpusettings.go sets
// GPUs for sharing. opener.go opens drivers, opened.go is one that is open or cannot be
// used, missing.go knows those that should be open and are not.
//
// Imports: pkg/claim/ledger, pkg/gpu, pkg/hardware, pkg/partition.
package drivers
