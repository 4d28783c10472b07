// Package v1alpha1 is the first version of the API objects of Tranche: the desired and
// the observed state of the GPUs of a node.
//
// The names that programs share (taints, labels, conditions, reasons, events) are in
// package names.
//
// +kubebuilder:object:generate=true
// +groupName=tranche.dev
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is that of the objects in this package.
var GroupVersion = schema.GroupVersion{Group: "tranche.dev", Version: "v1alpha1"}

// Kinds of objects of this package.
const (
	ProfileKind = "PartitionProfile"
	PlanKind    = "PartitionPlan"
)
