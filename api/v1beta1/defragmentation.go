package v1beta1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefragmentationState is a state of a defragmentation.
//
// +kubebuilder:validation:Enum=Reserving;Evicting;Placing;Succeeded;Aborted
type DefragmentationState string

// The states, in their order.
const (
	// DefragmentationReserving: the plugin taints the reserved devices.
	DefragmentationReserving DefragmentationState = "Reserving"
	// DefragmentationEvicting: the pods of the moves are evicted, one after another.
	DefragmentationEvicting DefragmentationState = "Evicting"
	// DefragmentationPlacing: the scheduler places the waiting pod.
	DefragmentationPlacing DefragmentationState = "Placing"
	// DefragmentationSucceeded: the waiting pod was scheduled. The scheduler may have chosen another
	// node or other devices.
	DefragmentationSucceeded DefragmentationState = "Succeeded"
	// DefragmentationAborted: the waiting pod was not scheduled. Message says why.
	DefragmentationAborted DefragmentationState = "Aborted"
)

// Bounds of a defragmentation, in addition to MaxGPUs devices for the pod and for each move.
const (
	// MaxReservedDevices is the maximum number of reserved devices.
	MaxReservedDevices = 512
	// MaxMoves is the maximum number of moves, MaxMovedDevices that of their devices.
	MaxMoves, MaxMovedDevices = 16, 256
)

// Defragmentation makes room for a waiting pod on the node by moving other pods. The last one
// of a node is kept after it has ended. It is part of the protocol between controller and plugin, and
// can change in any version.
type Defragmentation struct {
	// ID identifies the defragmentation. It is the value of the taint of the reserved devices.
	//
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// State is the state of the defragmentation.
	State DefragmentationState `json:"state"`
	// Pod is the waiting pod.
	Pod PodReference `json:"pod"`
	// Devices are the devices for the waiting pod.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Devices []string `json:"devices"`
	// ReservedDevices are the devices that overlap them. The plugin taints these until the
	// defragmentation ends, or until DeadlineTime, so that no other pod takes the room.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ReservedDevices []string `json:"reservedDevices,omitempty"`
	// Moves are the pods to evict.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(m, size(m.fromDevices) + size(m.toDevices)).sum() <= 256",message="have more than 256 devices together"
	Moves []DefragmentationMove `json:"moves"`
	// StartTime is the time at which it started.
	StartTime metav1.MicroTime `json:"startTime"`
	// DeadlineTime is the time at which the reservation ends, even if no controller runs.
	DeadlineTime metav1.MicroTime `json:"deadlineTime"`
	// EndTime is the time at which it succeeded or was aborted.
	//
	// +optional
	EndTime *metav1.MicroTime `json:"endTime,omitempty"`
	// EvictionTimes are the times of the node's evictions in the last hour, including those of
	// earlier defragmentations.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	EvictionTimes []metav1.MicroTime `json:"evictionTimes,omitempty"`
	// Message says how it ended.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PodReference identifies a pod, also among pods of the same name.
type PodReference struct {
	// Namespace is the namespace of the pod.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Name is the name of the pod.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// UID is the UID of the pod.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:-]*$`
	UID types.UID `json:"uid"`
}

// DefragmentationMove is a pod to evict, and what it holds.
type DefragmentationMove struct {
	PodReference `json:",inline"`
	// OwnerUID is the UID of its controller, which recreates it.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:-]*$`
	OwnerUID types.UID `json:"ownerUID"`
	// FromDevices are the devices that it holds on the node.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	FromDevices []string `json:"fromDevices"`
	// ToNodeName is a node that the pod's replacement fits on. The scheduler may choose another
	// one.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	ToNodeName string `json:"toNodeName"`
	// ToDevices are devices of that node that the replacement can have.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ToDevices []string `json:"toDevices"`
	// EvictionTime is the time at which the pod was evicted.
	//
	// +optional
	EvictionTime *metav1.MicroTime `json:"evictionTime,omitempty"`
	// Placed is true if the pod that replaces it has a node.
	//
	// +optional
	Placed bool `json:"placed,omitempty"`
}

// Active reports whether a defragmentation still reserves devices.
func (d *Defragmentation) Active(now time.Time) bool {
	return d != nil && d.EndTime == nil && now.Before(d.DeadlineTime.Time)
}
