package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme registers the objects of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PartitionProfile{}, &PartitionProfileList{}, &GPUNode{}, &GPUNodeList{},
		&PartitionPlan{}, &PartitionPlanList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
