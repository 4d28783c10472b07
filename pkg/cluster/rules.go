package cluster

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// ServesRules reports whether the API server of a mapper serves DeviceTaintRules.
func ServesRules(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(resourceapi.SchemeGroupVersion.WithKind("DeviceTaintRule").GroupKind(), resourceapi.SchemeGroupVersion.Version)
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether the API server serves DeviceTaintRules: %w", err)
	}
	return true, nil
}

// withRules returns copies of the slices with the taints of the rules, as the scheduler sees them.
func withRules(all []resourceapi.ResourceSlice, rules []resourceapi.DeviceTaintRule) []resourceapi.ResourceSlice {
	if len(rules) == 0 {
		return all
	}
	out := slices.Clone(all)
	for i := range out {
		slice, copied := &out[i], false
		for _, rule := range rules {
			for j := range slice.Spec.Devices {
				if !selects(rule, slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[j].Name) {
					continue
				}
				if !copied {
					*slice, copied = *slice.DeepCopy(), true
				}
				d := &slice.Spec.Devices[j]
				d.Taints = append(d.Taints, rule.Spec.Taint)
			}
		}
	}
	return out
}

// selects reports whether a rule selects a device. An empty selector selects all devices, none
// selects no device.
func selects(rule resourceapi.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	is := func(want *string, have string) bool { return want == nil || *want == have }
	return s != nil && is(s.Driver, driver) && is(s.Pool, pool) && is(s.Device, device)
}

// RulesBehind names the rules that set a taint on a device, none if the driver did.
func RulesBehind(rules []resourceapi.DeviceTaintRule, d *Device, taint resourceapi.DeviceTaint) []string {
	var names []string
	for _, rule := range rules {
		t := rule.Spec.Taint
		if t.Key == taint.Key && t.Value == taint.Value && t.Effect == taint.Effect && selects(rule, d.Pool.Driver, d.Pool.Name, d.Name) {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	return names
}
