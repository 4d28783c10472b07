// Package profile is what administrators want of the cards of a node: how they are
// cut and in which modes they are, who shares them and how, and what old resource
// names mean. It reads PartitionProfiles and the configuration files of NVIDIA's
// device plugin, strictly (profile.go, rules.go, cutting.go, selector.go), says for
// each card of a node what holds, or why a profile does not fit (resolve.go), and
// what a card then offers (shape.go).
//
// It may import the vocabulary (pkg/gpu), where partitions fit (layout), the API
// types, strict and the reader of other formats (deviceplugin).
package profile
