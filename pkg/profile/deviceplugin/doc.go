// Package deviceplugin reads the configuration file of NVIDIA's device plugin for
// Kubernetes (version v1) and says the same as a PartitionProfile.
//
// The file is read strictly. Of the keys that the device plugin knows, those that
// say how GPUs are shared are followed; those that would change nothing here are
// told as notes; those without which pods would get less than they do now are
// refused.
//
// Imports: api/v1alpha1, pkg/gpu, pkg/profile/strict.
package deviceplugin
