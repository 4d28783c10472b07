package v1beta1

// TaskPhase is the progress of a task.
//
// +kubebuilder:validation:Enum=Planned;Refused;Done;Failed;RebootRequired
type TaskPhase string

// The phases of a task.
const (
	// TaskPlanned: Changes lists what must change.
	TaskPlanned TaskPhase = "Planned"
	// TaskRefused: the profile does not fit the node. Message says why. Nothing was
	// changed.
	TaskRefused TaskPhase = "Refused"
	// TaskDone: the profile is applied, the hardware was read back, and the slices are
	// published.
	TaskDone TaskPhase = "Done"
	// TaskFailed: the profile could not be applied. Message says why.
	TaskFailed TaskPhase = "Failed"
	// TaskRebootRequired: the profile can be applied after a reboot. Pending modes were
	// reset unless the policy allows the reboot.
	TaskRebootRequired TaskPhase = "RebootRequired"
)

// Task is the plugin's report on a Switch: an answer in the protocol between controller and
// plugin. It can change in any version.
//
// +kubebuilder:validation:XValidation:rule="!has(self.changes) || self.changes.map(c, has(c.keptDevices) ? size(c.keptDevices) : 0).sum() <= 512",message="have more than 512 keptDevices together",fieldPath=".changes"
type Task struct {
	// SwitchID is the ID of the Switch.
	//
	// +kubebuilder:validation:MaxLength=64
	SwitchID string `json:"switchID"`
	// State is the state of the Switch that the report is about: Planning, Tainted, Applying,
	// Rebooting or RollingBack.
	State State `json:"state"`
	// TaintGeneration is the TaintGeneration of the Switch that the report is about, for Tainted.
	//
	// +optional
	TaintGeneration int32 `json:"taintGeneration,omitempty"`
	// Phase is the progress of the task.
	Phase TaskPhase `json:"phase"`
	// Reason is a word for the cause of Refused, Failed and RebootRequired.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message explains Phase. The plugin truncates it to the maximum length.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// Changes are the GPUs whose hardware must change, for Planned. Changes that disrupt no pod
	// are not listed.
	//
	// +optional
	// +listType=map
	// +listMapKey=gpu
	// +kubebuilder:validation:MaxItems=64
	Changes []GPUChange `json:"changes,omitempty"`
	// ShrinkingGPUs are the names of other GPUs whose hardware does not change, and of which
	// the profile no longer offers some devices, for Planned.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ShrinkingGPUs []string `json:"shrinkingGPUs,omitempty"`
}

// GPUChange is what must change on a GPU.
type GPUChange struct {
	// GPU is the GPU's name.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	GPU string `json:"gpu"`
	// Description describes the change: "MIG mode off", "partitions 1g.10gb x 7", "memory mode
	// NPS4". The plugin truncates it to the maximum length.
	//
	// +kubebuilder:validation:MaxLength=128
	Description string `json:"description"`
	// KeptDevices are the names of the devices whose pods are not evicted.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	KeptDevices []string `json:"keptDevices,omitempty"`
}
