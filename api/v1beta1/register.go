package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the name of the API group.
const GroupName = "tranche.dev"

// GroupVersion is the group and version of the objects in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta1"}

// Kinds of objects of this package.
const (
	NodeKind    = "GPUNode"
	ProfileKind = "PartitionProfile"
	PlanKind    = "PartitionPlan"
	MapKind     = "GPUResourceMap"
)

var (
	// SchemeBuilder collects the functions that register the objects.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the objects of this package.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource returns a resource of this group.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PartitionProfile{}, &PartitionProfileList{}, &GPUNode{}, &GPUNodeList{},
		&PartitionPlan{}, &PartitionPlanList{}, &GPUResourceMap{}, &GPUResourceMapList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
