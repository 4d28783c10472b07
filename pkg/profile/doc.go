// Package profile turns profiles into the desired state of each GPU of a node.
//
// profile.go, rules.go, partitions.go and selector.go read PartitionProfiles. configs.go reads
// the configuration files of NVIDIA's device plugin, which the package deviceplugin
// translates into rules. resolve.go applies rules to the GPUs of a node, or says why they
// do not fit. desired.go decides which of profile, configuration and default applies.
// state.go and layout.go define the desired state.
//
// packing finds positions for partitions, strict rejects unknown fields, and provision
// creates PartitionProfiles from the files of the chart.
package profile
