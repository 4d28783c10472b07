// Package profile turns profiles into the desired state of each GPU of a node.
//
// profile.go, rules.go, partitions.go and selector.go read PartitionProfiles. resolve.go applies
// rules to the GPUs of a node, or says why they do not fit. desired.go decides whether the profile or
// what is in force applies. state.go and layout.go define the desired state, sharedevices.go has the
// shares of a GPU by it.
//
// packing.go and packingsearch.go find positions for MIG partitions. pkg/strict rejects unknown
// fields, and provision creates PartitionProfiles from the files of the chart.
package profile
