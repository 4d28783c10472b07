package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeReport is what the node's plugin observes.
type NodeReport struct {
	// BootID is the kernel's boot ID, which changes with a reboot.
	//
	// +optional
	BootID string `json:"bootID,omitempty"`
	// GPUs are the node's GPUs in PCI order.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	GPUs []GPUReport `json:"gpus,omitempty"`
	// Count is the number of GPUs. It and the next two numbers are present even if 0,
	// because tables show them.
	//
	// +optional
	GPUCount int32 `json:"gpuCount"`
	// Free is the number of healthy GPUs of which no claim holds a device.
	//
	// +optional
	FreeGPUs int32 `json:"freeGPUs"`
	// Held is the number of claims that hold a device of the GPUs.
	//
	// +optional
	ClaimCount int32 `json:"claimCount"`
	// Owners describe other systems that serve GPUs of the node.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	OtherSystems []string `json:"otherSystems,omitempty"`
	// Applied is the hash of the applied profile.
	//
	// +optional
	AppliedHash string `json:"appliedHash,omitempty"`
	// Taints identifies the Switch, and its Order, that the device taints in the node's
	// ResourceSlices belong to. It is reported after the API server has accepted the
	// slices. It is absent if no device is tainted for a switch.
	//
	// +optional
	PublishedTaints *PublishedTaints `json:"publishedTaints,omitempty"`
	// InputHash is a hash of everything that the changes for a profile depend on, except claims: the GPUs,
	// their drivers and modes, and the plugin's settings.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InputHash string `json:"inputHash,omitempty"`
	// Unhealthy are the GPUs with the taint gpu.tranche.dev/unhealthy.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	UnhealthyGPUs []UnhealthyGPU `json:"unhealthyGPUs,omitempty"`
	// Unprepared lists the first claims that the node's hardware or driver cannot prepare.
	// Invalid claims are not listed.
	//
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=8
	UnpreparedClaims []UnpreparedClaim `json:"unpreparedClaims,omitempty"`
	// Task is the plugin's last report on the Switch.
	//
	// +optional
	Task *Task `json:"task,omitempty"`
}

// UnhealthyGPU is a GPU that became unhealthy.
type UnhealthyGPU struct {
	// Name is the name of the GPU.
	//
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Since is the time at which it was found.
	DetectionTime metav1.Time `json:"detectionTime"`
}

// UnpreparedClaim is a claim that could not be prepared.
type UnpreparedClaim struct {
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid"`
	// Since is the time at which it first failed.
	FirstFailureTime metav1.Time `json:"firstFailureTime"`
	// Message says why.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PublishedTaints identifies the taint request that the published device taints fulfill.
type PublishedTaints struct {
	// Switch is the ID of the Switch.
	//
	// +kubebuilder:validation:MaxLength=64
	SwitchID string `json:"switchID"`
	// Order is the Order of that Switch.
	TaintGeneration int32 `json:"taintGeneration"`
	// Withheld is true if the API server drops device taints, so that the plugin publishes
	// only those of these devices that claims hold. Another pod with the same claim can
	// still get one, which only a node taint prevents.
	//
	// +optional
	Withheld bool `json:"withheld,omitempty"`
}

// MaxReportText is the maximum length of each text of a report, in bytes.
const MaxReportText = 4096

// GPUReport is one GPU.
type GPUReport struct {
	// Name is the name of the GPU, derived from its PCI address as in device names.
	//
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +kubebuilder:validation:MaxLength=64
	Vendor string `json:"vendor"`
	// Product is the product name.
	//
	// +kubebuilder:validation:MaxLength=256
	Product string `json:"product"`
	// Index is the GPU's index in the vendor's enumeration.
	Index int32 `json:"index"`
	// Mode is the current mode of the hardware: "MIG on", "MIG off", "CPX NPS1". It is empty
	// for a GPU without modes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Mode string `json:"mode,omitempty"`
	// Partitions are the names of the partitions that exist now.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Partitions []string `json:"partitions,omitempty"`
	// Held are the names of the devices that claims hold.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	HeldDevices []string `json:"heldDevices,omitempty"`
	// Slice is a hash of the devices that the plugin publishes of the GPU, to compare with
	// the API server's ResourceSlices.
	//
	// +optional
	SliceHash string `json:"sliceHash,omitempty"`
	// Problem explains why the GPU cannot be used, or only in part.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Problem string `json:"problem,omitempty"`
	// Pending describes the part of the applied profile that waits until claims are released.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Pending string `json:"pending,omitempty"`
}

// HasGPUs reports whether the node has GPUs. If they are too many to list, only Count is set.
func (r *NodeReport) HasGPUs() bool { return r.GPUCount > 0 || len(r.GPUs) > 0 }
