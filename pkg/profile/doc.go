// Package profile turns profiles into the desired state of each GPU of a node, and computes the
// changes of the hardware.
//
// profile.go, rules.go, partitions.go and selector.go read PartitionProfiles. resolve.go applies
// rules to the GPUs of a node, or says why they do not fit. desired.go decides whether the profile or
// what is in force applies. state.go and layout.go define the desired state, sharedevices.go has the
// shares of a GPU by it, extendedresource.go and resolveextended.go what a vendor's extended resource
// means. withouteffect.go refuses settings of shares that a rule does not offer. packing.go and
// packingsearch.go find positions for MIG partitions. stored.go has profiles as
// they are stored.
//
// changes.go, changesmig.go and changesmodes.go compare layouts with the hardware. All of it is pure.
package profile
