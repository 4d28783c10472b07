// Package deviceplugin converts configuration files of NVIDIA's device plugin for Kubernetes
// (version v1) to PartitionProfiles.
//
// Unknown keys are errors. Keys about sharing are converted. Keys without effect here become notes.
// Keys without which pods would get less than from the device plugin are errors.
package deviceplugin
