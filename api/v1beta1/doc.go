// Package v1beta1 contains the API objects of Tranche: the desired and the observed state of
// the GPUs of a node. Labels, taints, conditions, reasons and events are in package names.
//
// +kubebuilder:object:generate=true
// +groupName=tranche.dev
package v1beta1
