// Package profile turns profiles into the desired state of each GPU of a node.
//
// profile.go, rules.go, cutting.go and selector.go read PartitionProfiles strictly;
// configs.go reads the configuration files of NVIDIA's device plugin, which the package
// deviceplugin translates into rules. resolve.go applies rules to the GPUs of a node, or
// says why they do not fit. desired.go decides what applies where a profile, a
// configuration or nothing is known. state.go and shape.go are the result, the desired
// state; hash.go tells two versions of a profile apart.
//
// layout finds the places of partitions, strict refuses what it does not know, and
// provision creates PartitionProfiles from the files of the chart.
//
// Imports: api/v1alpha1, pkg/gpu, pkg/profile/deviceplugin, pkg/profile/layout,
// pkg/profile/strict, pkg/text.
package profile
