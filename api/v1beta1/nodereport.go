package v1beta1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReport is what the node's plugin observes. The plugin truncates lists and texts to their
// bounds, those of the last GPUs first. All GPUs together have at most 1536 partitions and held
// devices, and 8192 characters of problems and pending, so that the API server can store the object.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gpus) || self.gpus.map(g, (has(g.partitions) ? size(g.partitions) : 0) + (has(g.heldDevices) ? size(g.heldDevices) : 0)).sum() <= 1536",message="have more than 1536 partitions and heldDevices together",fieldPath=".gpus"
// +kubebuilder:validation:XValidation:rule="!has(self.gpus) || self.gpus.map(g, (has(g.problems) ? g.problems.map(p, size(p.message)).sum() : 0) + (has(g.pending) ? size(g.pending) : 0)).sum() <= 8192",message="have more than 8192 characters of problems and pending together",fieldPath=".gpus"
type NodeReport struct {
	// PluginVersion is the version of the plugin, for people.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 _.:+-]*$`
	PluginVersion string `json:"pluginVersion,omitempty"`
	// ProtocolVersion is the version of the protocol between controller and plugin that the
	// plugin follows: what status.switch asks of it, and what it answers in task. A controller
	// begins no switch on a node whose plugin follows a newer one than it knows.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ProtocolVersion int32 `json:"protocolVersion,omitempty"`
	// BootID is the kernel's boot ID, which changes with a reboot.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 _.:+-]*$`
	BootID string `json:"bootID,omitempty"`
	// GPUs are the node's GPUs in PCI order. They are absent if the node has more than 64.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	GPUs []GPUReport `json:"gpus,omitempty"`
	// GPUCount is the number of GPUs. It and the next two numbers are present even if 0,
	// because tables show them.
	//
	// +optional
	GPUCount int32 `json:"gpuCount"`
	// FreeGPUCount is the number of healthy GPUs of which no claim holds a device.
	//
	// +optional
	FreeGPUCount int32 `json:"freeGPUCount"`
	// ClaimCount is the number of claims that hold a device of the GPUs.
	//
	// +optional
	ClaimCount int32 `json:"claimCount"`
	// OtherSystems are other systems that serve GPUs of the node. The plugin names the first 16.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	OtherSystems []OtherSystem `json:"otherSystems,omitempty"`
	// AppliedHash is the hash of the applied profile.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 _.:+-]*$`
	AppliedHash string `json:"appliedHash,omitempty"`
	// PublishedTaints identifies the Switch, and its TaintGeneration, that the device taints in the node's
	// ResourceSlices belong to. It is reported after the API server has accepted the
	// slices. It is absent if no device is tainted for a switch.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	PublishedTaints *PublishedTaints `json:"publishedTaints,omitempty"`
	// InputHash is a hash of everything that the changes for a profile depend on, except claims: the GPUs,
	// their drivers and modes, and the plugin's settings.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 _.:+-]*$`
	InputHash string `json:"inputHash,omitempty"`
	// KernelLimitsUnavailable says why the kernel driver does not limit the memory of shares of a
	// shared GPU. It is absent if it does for all, and if no GPU is shared.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	KernelLimitsUnavailable string `json:"kernelLimitsUnavailable,omitempty"`
	// UnhealthyGPUs are the GPUs with the taint gpu.tranche.dev/unhealthy.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	UnhealthyGPUs []UnhealthyGPU `json:"unhealthyGPUs,omitempty"`
	// UnpreparedClaims lists the first claims that the node's hardware or driver cannot prepare.
	// Invalid claims are not listed.
	//
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=8
	UnpreparedClaims []UnpreparedClaim `json:"unpreparedClaims,omitempty"`
	// Task is the plugin's last report on the Switch. It is part of the protocol between
	// controller and plugin, and can change in any version: programs should not read it.
	//
	// +optional
	Task *Task `json:"task,omitempty"`
}

// OtherSystem is another system that serves GPUs of the node.
type OtherSystem struct {
	// Name is the name of the system, as in the taint gpu.tranche.dev/other-system: "mig-manager", or
	// that of a DRA driver.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Name string `json:"name"`
	// Message says how it was detected, and how Tranche can have its GPUs.
	//
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

// UnhealthyGPU is a GPU that became unhealthy.
type UnhealthyGPU struct {
	// Name is the name of the GPU.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// DetectionTime is the time at which it was found.
	DetectionTime metav1.Time `json:"detectionTime"`
}

// UnpreparedClaim is a claim that could not be prepared.
type UnpreparedClaim struct {
	// Namespace is the namespace of the claim.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Name is the name of the claim.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// UID is the UID of the claim.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:-]*$`
	UID string `json:"uid"`
	// FirstFailureTime is the time at which it first failed.
	FirstFailureTime metav1.Time `json:"firstFailureTime"`
	// Message says why.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// PublishedTaints identifies the taint request that the published device taints fulfill. It is part of
// the protocol between controller and plugin, and can change in any version.
type PublishedTaints struct {
	// SwitchID is the ID of the Switch.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 _.:+-]*$`
	SwitchID string `json:"switchID"`
	// TaintGeneration is the TaintGeneration of that Switch.
	TaintGeneration int32 `json:"taintGeneration"`
	// Withheld is true if the API server drops device taints, so that the plugin publishes
	// only those of these devices that claims hold. Another pod with the same claim can
	// still get one, which only a node taint prevents.
	//
	// +optional
	Withheld bool `json:"withheld,omitempty"`
}

// ProtocolVersion is the newest protocol between controller and plugin that this version knows.
const ProtocolVersion = 1

// Bounds of what the plugin writes, so that the API server can store each GPUNode. Texts are in
// bytes; sums are over all GPUs.
const (
	// MaxGPUs is the maximum number of listed GPUs.
	MaxGPUs = 64
	// MaxGPUNames is the maximum number of partitions of a GPU, and of its held devices.
	// MaxSumOfNames is the maximum sum of both.
	MaxGPUNames, MaxSumOfNames = 128, 1536
	// MaxReportText is the maximum length of the message of a problem, of pending, and of the message of a task.
	// MaxSumOfTexts is the maximum sum of the first two.
	MaxReportText, MaxSumOfTexts = 4096, 8192
	// MaxProduct is the maximum length of a product name, MaxPluginVersion that of a version.
	MaxProduct, MaxPluginVersion = 64, 64
	// MaxOtherSystems is the maximum number of other systems, MaxListedText the maximum length of
	// their messages, and of the messages of unprepared claims and of blockers.
	MaxOtherSystems, MaxListedText = 16, 512
	// MaxChange is the maximum length of the description of a change.
	MaxChange = 128
	// MaxKeptDevices and MaxSumOfKept are the maximum number of kept devices, and of their sum.
	MaxKeptDevices, MaxSumOfKept = 64, 512
)

// HardwareMIGMode is whether MIG mode is on.
//
// +kubebuilder:validation:Enum=Enabled;Disabled
type HardwareMIGMode string

// Whether MIG mode is on.
const (
	MIGModeEnabled  HardwareMIGMode = "Enabled"
	MIGModeDisabled HardwareMIGMode = "Disabled"
)

// GPUModes are the current modes of a GPU. Those that the GPU does not have are absent.
type GPUModes struct {
	// MIGMode is Enabled or Disabled, for an NVIDIA GPU that supports MIG.
	//
	// +optional
	MIGMode HardwareMIGMode `json:"migMode,omitempty"`
	// ComputePartition is the compute mode of an AMD GPU, as amdgpu names it: SPX, DPX, TPX, QPX,
	// CPX.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[A-Z0-9]*$`
	ComputePartition string `json:"computePartition,omitempty"`
	// MemoryPartition is the memory mode of an AMD GPU, as amdgpu names it: NPS1, NPS2, NPS4, NPS8.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[A-Z0-9]*$`
	MemoryPartition string `json:"memoryPartition,omitempty"`
}

// GPUProblem is why a GPU cannot be used.
type GPUProblem struct {
	// Cause is the cause in a word, as in the taint gpu.tranche.dev/unhealthy: "lost", "xid-79".
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Cause string `json:"cause"`
	// Message explains Cause, and says what to do.
	//
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message"`
}

// PartitionReport is a partition of a GPU.
type PartitionReport struct {
	// Name is the name of the partition, as of its device.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Profile is the profile of the partition: "1g.10gb", "cpx".
	//
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9.+-]*$`
	Profile string `json:"profile"`
}

// GPUReport is one GPU.
type GPUReport struct {
	// Name is the name of the GPU, derived from its PCI address as in device names.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Vendor is the vendor of the GPU: nvidia or amd.
	//
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 _.:+-]*$`
	Vendor string `json:"vendor"`
	// ProductName is the product name, as in the device attribute productName.
	//
	// +kubebuilder:validation:MaxLength=64
	ProductName string `json:"productName"`
	// Index is the GPU's index in the vendor's enumeration.
	Index    int32 `json:"index"`
	GPUModes `json:",inline"`
	// Partitions are the partitions that exist now.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Partitions []PartitionReport `json:"partitions,omitempty"`
	// HeldDevices are the names of the devices that claims hold.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	HeldDevices []string `json:"heldDevices,omitempty"`
	// SliceHash is a hash of the devices that the plugin publishes of the GPU, to compare with
	// the API server's ResourceSlices.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 _.:+-]*$`
	SliceHash string `json:"sliceHash,omitempty"`
	// Problems are why the GPU cannot be used.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Problems []GPUProblem `json:"problems,omitempty"`
	// Pending describes the part of the applied profile that waits until claims are released.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Pending string `json:"pending,omitempty"`
}

// OtherSystemsText returns the messages of the other systems.
func (r *NodeReport) OtherSystemsText() string {
	messages := make([]string, len(r.OtherSystems))
	for i := range r.OtherSystems {
		messages[i] = r.OtherSystems[i].Message
	}
	return strings.Join(messages, "; ")
}

// ProblemText returns the messages of problems. It is empty if there are none.
func ProblemText(problems []GPUProblem) string {
	messages := make([]string, len(problems))
	for i := range problems {
		messages[i] = problems[i].Message
	}
	return strings.Join(messages, "; ")
}

// HasGPUs reports whether the node has GPUs. If they are too many to list, only GPUCount is set.
func (r *NodeReport) HasGPUs() bool { return r.GPUCount > 0 || len(r.GPUs) > 0 }
