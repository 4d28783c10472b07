// Package progress tells how far nodes are with their profiles, in data and in
// words for people: which profile a node should follow and which it follows, what
// its switch is doing and until when, why the last one failed, how earlier ones
// went, and how many nodes want each profile.
//
// It is pure: it is given GPUNodes and PartitionProfiles. It may import
// api/v1alpha1 and nothing else of this module.
package progress
