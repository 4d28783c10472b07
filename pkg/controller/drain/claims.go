package drain

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// NodeIndex is the index of claims by the nodes of their devices.
const NodeIndex = "node"

// NodesOf returns the nodes of the devices that a claim has from this driver.
func NodesOf(o client.Object) []string {
	c, ok := o.(*resourceapi.ResourceClaim)
	if !ok || c.Status.Allocation == nil {
		return nil
	}
	var nodes []string
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if r.Driver == names.DriverName && !slices.Contains(nodes, r.Pool) {
			nodes = append(nodes, r.Pool)
		}
	}
	return nodes
}

// TrimClaim keeps only what is needed to find holders: a cluster can have very many claims.
func TrimClaim(o any) (any, error) {
	c, ok := o.(*resourceapi.ResourceClaim)
	if !ok {
		return o, nil
	}
	out := &resourceapi.ResourceClaim{TypeMeta: c.TypeMeta}
	out.Name, out.Namespace, out.UID, out.ResourceVersion = c.Name, c.Namespace, c.UID, c.ResourceVersion
	if c.Status.Allocation != nil {
		// Also of claims without our devices it is known that they are allocated.
		out.Status.Allocation = &resourceapi.AllocationResult{}
	}
	if c.Status.Allocation == nil {
		out.DeletionTimestamp, out.Spec = c.DeletionTimestamp, classesOf(c)
	}
	for _, o := range podOwners(c) {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, UID: o.UID})
	}
	if len(NodesOf(c)) == 0 {
		return out, nil
	}
	out.Status.ReservedFor = c.Status.ReservedFor
	for i := range c.Status.Allocation.Devices.Results {
		if r := &c.Status.Allocation.Devices.Results[i]; r.Driver == names.DriverName {
			kept := resourceapi.DeviceRequestAllocationResult{
				Driver: r.Driver, Pool: r.Pool, Device: r.Device, AdminAccess: r.AdminAccess, ShareID: r.ShareID, ConsumedCapacity: r.ConsumedCapacity,
			}
			if tolerates(r.Tolerations) {
				kept.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
			}
			out.Status.Allocation.Devices.Results = append(out.Status.Allocation.Devices.Results, kept)
		}
	}
	return out, nil
}

// classesOf keeps of the spec of a claim which DeviceClasses it asks for.
func classesOf(c *resourceapi.ResourceClaim) (spec resourceapi.ResourceClaimSpec) {
	for _, class := range Classes(c) {
		spec.Devices.Requests = append(spec.Devices.Requests, resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}})
	}
	return spec
}

// Classes lists the DeviceClasses that a claim asks for, alternatives included.
func Classes(c *resourceapi.ResourceClaim) (classes []string) {
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			classes = append(classes, r.Exactly.DeviceClassName)
		}
		for j := range r.FirstAvailable {
			classes = append(classes, r.FirstAvailable[j].DeviceClassName)
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// OfPod reports whether a claim was made for a pod, from a template.
func OfPod(c *resourceapi.ResourceClaim) bool { return len(podOwners(c)) > 0 }

// podOwners returns the pods that own a claim.
func podOwners(c *resourceapi.ResourceClaim) []metav1.OwnerReference {
	return lists.Filter(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Pod" && o.APIVersion == "v1" })
}

// ofOnePod reports whether a claim was created for one pod, from a template or for an extended
// resource, and is deleted with it: only its owner uses it. The owner reference alone proves
// nothing, because everybody who can create claims can set it.
func ofOnePod(c *resourceapi.ResourceClaim, users []types.UID) bool {
	owners := podOwners(c)
	if len(owners) != 1 {
		return false
	}
	return !slices.ContainsFunc(users, func(uid types.UID) bool { return uid != owners[0].UID })
}

// tolerates reports whether tolerations can make the taint of a switch ineffective. Operator,
// value and effect do not count: the value is the name of a profile, which everybody can read,
// and the next claim can have another one.
func tolerates(tolerations []resourceapi.DeviceToleration) bool {
	return slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool {
		return t.Key == "" || t.Key == names.TaintSwitching
	})
}

// use is what one claim has of the GPUs that change.
type use struct {
	claim     *resourceapi.ResourceClaim
	devices   []string
	tolerates bool
	// admin: it has all of them by admin access, as a monitor.
	admin bool
}

// useOf finds the devices of GPUs of a node that a claim holds, except those that are kept.
func useOf(c *resourceapi.ResourceClaim, node string, gpus []string, keeps map[string]bool) use {
	u := use{claim: c, admin: true}
	if c.Status.Allocation == nil {
		return u
	}
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		ofGPUs := r.Pool == names.PoolName(node) && slices.Contains(gpus, gpu.OfDevice(r.Device))
		if r.Driver != names.DriverName || !ofGPUs || keeps[r.Device] {
			continue
		}
		u.devices = append(u.devices, r.Device)
		u.admin = u.admin && ptr.Deref(r.AdminAccess, false) && gpu.IsMonitor(r.Device)
		u.tolerates = u.tolerates || tolerates(r.Tolerations)
	}
	slices.Sort(u.devices)
	u.devices = slices.Compact(u.devices)
	return u
}
