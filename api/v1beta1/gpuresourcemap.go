package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUResourceMap has the GPU memory and compute that pods of its namespace request for their claims.
// The controller writes one named "tranche" for each namespace whose pods get requests, and an admission
// policy adds these to pods. It is part of the protocol between controller and policy, and can change in
// any version: neither write nor rely on it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=gpumap
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'tranche'",message="the admission policy reads only the GPUResourceMap named tranche"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GPUResourceMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the amounts.
	Spec GPUResourceMapSpec `json:"spec"`
}

// GPUResourceMapList is a list of GPUResourceMaps.
//
// +kubebuilder:object:root=true
type GPUResourceMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUResourceMap `json:"items"`
}

// Bounds of a GPUResourceMap. With this many entries, it fits into a request to etcd.
const (
	MaxMappedTemplates = 4096
	MaxMappedResources = 512
	MaxMappedMemoryMiB = 1 << 30
	MaxMappedCompute   = 1_000_000
)

// GPUResourceMapSpec has amounts for claims. What it lacks adds nothing to pods.
type GPUResourceMapSpec struct {
	// Templates has the least that a claim of a ResourceClaimTemplate takes, by the template's name.
	//
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=4096
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[-.a-z0-9]{1,253}$'))",message="each key must be the name of a ResourceClaimTemplate"
	Templates map[string]GPUResources `json:"templates,omitempty"`
	// ExtendedResources has the least that one unit of an extended resource takes, by the
	// resource's name.
	//
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=512
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[-._/a-zA-Z0-9]{1,317}$'))",message="each key must be the name of an extended resource"
	ExtendedResources map[string]GPUResources `json:"extendedResources,omitempty"`
}

// GPUResources is an amount of the resources tranche.dev/gpu-memory and tranche.dev/gpu-compute.
type GPUResources struct {
	// MemoryMiB is GPU memory, in MiB. Default: 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1073741824
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// Compute is GPU compute, in thousandths of a GPU. Default: 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Compute int64 `json:"compute,omitempty"`
}
