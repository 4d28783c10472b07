// Package v1beta1 contains the API objects of Tranche: the desired and the observed state of
// the GPUs of a node. Labels, taints, conditions, reasons and events are in package names.
//
// +kubebuilder:object:generate=true
// +groupName=tranche.dev
package v1beta1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is the group and version of the objects in this package.
var GroupVersion = schema.GroupVersion{Group: "tranche.dev", Version: "v1beta1"}

// Kinds of objects of this package.
const (
	NodeKind    = "GPUNode"
	ProfileKind = "PartitionProfile"
	PlanKind    = "PartitionPlan"
)
