package drain

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// NodeIndex is the name of the index of claims by the nodes that they have devices of.
const NodeIndex = "node"

// NodesOf are the nodes that a claim has devices of ours of.
func NodesOf(o client.Object) []string {
	c, ok := o.(*resourceapi.ResourceClaim)
	if !ok || c.Status.Allocation == nil {
		return nil
	}
	var nodes []string
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if node := gpu.NodeOfPool(r.Pool); r.Driver == gpu.DriverName && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// TrimClaim leaves of a claim what holders are found by: a cluster may have very many.
func TrimClaim(o any) (any, error) {
	c, ok := o.(*resourceapi.ResourceClaim)
	if !ok {
		return o, nil
	}
	out := &resourceapi.ResourceClaim{TypeMeta: c.TypeMeta}
	out.Name, out.Namespace, out.UID, out.ResourceVersion = c.Name, c.Namespace, c.UID, c.ResourceVersion
	if c.Status.Allocation != nil {
		// That it has something is known also of one that has nothing of ours.
		out.Status.Allocation = &resourceapi.AllocationResult{}
	}
	if len(NodesOf(c)) == 0 {
		return out, nil
	}
	for _, o := range podOwners(c) {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, UID: o.UID})
	}
	out.Status.ReservedFor = c.Status.ReservedFor
	for i := range c.Status.Allocation.Devices.Results {
		if r := &c.Status.Allocation.Devices.Results[i]; r.Driver == gpu.DriverName {
			kept := resourceapi.DeviceRequestAllocationResult{Driver: r.Driver, Pool: r.Pool, Device: r.Device, AdminAccess: r.AdminAccess}
			if toleratesAll(r.Tolerations) {
				kept.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
			}
			out.Status.Allocation.Devices.Results = append(out.Status.Allocation.Devices.Results, kept)
		}
	}
	return out, nil
}

// podOwners are the pods that own a claim.
func podOwners(c *resourceapi.ResourceClaim) []metav1.OwnerReference {
	var owners []metav1.OwnerReference
	for _, o := range c.OwnerReferences {
		if o.Kind == "Pod" && o.APIVersion == "v1" {
			owners = append(owners, o)
		}
	}
	return owners
}

// ofOnePod tells whether a claim was made for one pod, from a template or for an extended
// resource, and goes with it: nobody but its owner uses it. An owner alone proves
// nothing, because whoever may create claims can write any owner.
func ofOnePod(c *resourceapi.ResourceClaim, users []types.UID) bool {
	owners := podOwners(c)
	if len(owners) != 1 {
		return false
	}
	return !slices.ContainsFunc(users, func(uid types.UID) bool { return uid != owners[0].UID })
}

// toleratesAll tells whether our taint on a GPU keeps nothing off.
func toleratesAll(tolerations []resourceapi.DeviceToleration) bool {
	return slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool {
		return t.Operator == resourceapi.DeviceTolerationOpExists && (t.Key == "" || t.Key == v1alpha1.TaintRepartitioning) &&
			(t.Effect == "" || t.Effect == resourceapi.DeviceTaintEffectNoSchedule)
	})
}

// use is what one claim has of the GPUs that change.
type use struct {
	claim     *resourceapi.ResourceClaim
	devices   []string
	tolerates bool
	// admin: it has all of them by admin access.
	admin bool
}

// useOf finds what a claim has of a node's GPUs beside what is kept. It is pure.
func useOf(c *resourceapi.ResourceClaim, node string, gpus []string, keeps map[string]bool) use {
	u := use{claim: c, admin: true}
	if c.Status.Allocation == nil {
		return u
	}
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		ofGPUs := gpu.NodeOfPool(r.Pool) == node && slices.Contains(gpus, gpu.OfDevice(r.Device))
		if r.Driver != gpu.DriverName || !ofGPUs || keeps[r.Device] {
			continue
		}
		u.devices = append(u.devices, r.Device)
		u.admin = u.admin && ptr.Deref(r.AdminAccess, false)
		u.tolerates = u.tolerates || toleratesAll(r.Tolerations)
	}
	slices.Sort(u.devices)
	u.devices = slices.Compact(u.devices)
	return u
}
