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

// Defragmentation makes room for a waiting pod on the node by moving other pods. The last one
// of a node is kept after it has ended.
type Defragmentation struct {
	// ID identifies the defragmentation. It is the value of the taint of the reserved devices.
	//
	// +kubebuilder:validation:MaxLength=63
	ID    string               `json:"id"`
	State DefragmentationState `json:"state"`
	// Pod is the waiting pod.
	Pod PodReference `json:"pod"`
	// Devices are the devices for the waiting pod.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Devices []string `json:"devices"`
	// Reserved are the devices that overlap them. The plugin taints these until the
	// defragmentation ends, or until Deadline, so that no other pod takes the room.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	ReservedDevices []string `json:"reservedDevices,omitempty"`
	// Moves are the pods to evict.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Moves []DefragmentationMove `json:"moves"`
	// Started is the time at which it started.
	StartTime metav1.MicroTime `json:"startTime"`
	// Deadline is the time at which the reservation ends, even if no controller runs.
	DeadlineTime metav1.MicroTime `json:"deadlineTime"`
	// Ended is the time at which it succeeded or was aborted.
	//
	// +optional
	EndTime *metav1.MicroTime `json:"endTime,omitempty"`
	// Evictions are the times of the node's evictions in the last hour, including those of
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
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// DefragmentationMove is a pod to evict, and what it holds.
type DefragmentationMove struct {
	PodReference `json:",inline"`
	// Owner is the UID of its controller, which recreates it.
	OwnerUID types.UID `json:"ownerUID"`
	// From are the devices that it holds on the node.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	FromDevices []string `json:"fromDevices"`
	// Node and To are a place that the pod's replacement fits in. The scheduler may
	// choose another one.
	ToNodeName string `json:"toNodeName"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ToDevices []string `json:"toDevices"`
	// Evicted is the time at which the pod was evicted.
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
