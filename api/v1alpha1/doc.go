// Package v1alpha1 is the first version of the API objects of Tranche: the desired and
// the observed state of the GPUs of a node.
//
// Names that several programs share, and that administrators read, are constants here:
// taints, labels, conditions, reasons, events and metrics. The tables of the
// documentation are generated from their comments.
//
// +kubebuilder:object:generate=true
// +groupName=tranche.dev
//
// Imports: none.
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is that of the objects in this package.
var GroupVersion = schema.GroupVersion{Group: "tranche.dev", Version: "v1alpha1"}

// Kinds of objects of this package.
const (
	ProfileKind = "PartitionProfile"
	PlanKind    = "PartitionPlan"
)
