package demand

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// Key returns a key that is equal for pods that fit on the same nodes, apart from CPU, memory and
// volumes.
func (d *Demand) Key(classes []resourceapi.DeviceClass) (string, error) {
	of := struct {
		Selector    map[string]string
		Affinity    *corev1.NodeSelector
		Tolerations []corev1.Toleration
		Claims      []resourceapi.DeviceClaim
		Extended    map[corev1.ResourceName]string
		Follows     []*corev1.NodeSelector
		Classes     map[string][]resourceapi.DeviceSelector
	}{Selector: d.Pod.Spec.NodeSelector, Tolerations: d.Pod.Spec.Tolerations, Extended: d.Extended, Classes: map[string][]resourceapi.DeviceSelector{}}
	if a := d.Pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		of.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	named := map[string]bool{}
	d.EachRequest(func(_ *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		for _, ch := range Choices(r) {
			named[ch.Class] = true
		}
	})
	for i := range classes {
		if named[classes[i].Name] {
			of.Classes[classes[i].Name] = classes[i].Spec.Selectors
		}
	}
	for _, c := range d.Unallocated {
		of.Claims = append(of.Claims, resourceapi.DeviceClaim{Requests: c.Spec.Devices.Requests, Constraints: c.Spec.Devices.Constraints})
	}
	for _, c := range d.Allocated {
		of.Follows = append(of.Follows, c.Status.Allocation.NodeSelector)
	}
	data, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("encode the demand of a pod: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}
