package hardware

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// Owner is another system that serves one vendor's GPUs of a node. Two systems on one
// GPU would allocate it twice, or partition it under a running pod.
type Owner struct {
	// Name is short enough for a taint's value.
	Name string
	// Found is what gave it away.
	Found string
	// Remedy is what a person can do.
	Remedy string
}

// Evidence is what may show other systems on a node. All of it is written by
// administrators and node agents, nothing by tenants.
type Evidence struct {
	// Node is nil until it was seen.
	Node *corev1.Node
	// Slices are the node's ResourceSlices of the vendors' DRA drivers.
	Slices []*resourceapi.ResourceSlice
	// Running lists those of the vendors' OwnerPrograms that run.
	Running []string
}

// DevicePlugin returns the device plugin that serves resources of these names, if there
// is one.
func (e Evidence) DevicePlugin(names *regexp.Regexp, remedy string) []Owner {
	if e.Node == nil {
		return nil
	}
	var found []string
	for name, quantity := range e.Node.Status.Allocatable {
		if names.MatchString(string(name)) && !quantity.IsZero() {
			found = append(found, string(name)+": "+quantity.String())
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return []Owner{{Name: "device-plugin", Found: "a device plugin serves " + strings.Join(found, ", ") + " here", Remedy: remedy}}
}

// DRADriver returns a DRA driver if it publishes devices of the node.
func (e Evidence) DRADriver(name, remedy string) []Owner {
	for _, s := range e.Slices {
		if s.Spec.Driver == name && len(s.Spec.Devices) > 0 {
			return []Owner{{Name: name, Found: "DRA driver " + name + " publishes devices of this node", Remedy: remedy}}
		}
	}
	return nil
}
