package defrag

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

type (
	allocated = structured.AllocatedState
	results   = []resourceapi.DeviceRequestAllocationResult
)

// callPatience limits one call of the allocator, which tries every combination of many devices.
const callPatience = 500 * time.Millisecond

// allocate asks the scheduler's allocator what claims get on a node. It returns nil if they do not
// fit.
func (p *Planner) allocate(ctx context.Context, s *site, held allocated, published []*resourceapi.ResourceSlice,
	claims []*resourceapi.ResourceClaim) (results, error) {
	fewer, err := p.candidates(ctx, held, published, claims)
	if err != nil {
		return nil, err
	}
	return p.allocateOf(ctx, s, held, fewer, claims)
}

// candidates are slices without the devices that the claims cannot get, each of which costs the allocator
// time. It needs those that are held, because they use counters.
func (p *Planner) candidates(ctx context.Context, held allocated, published []*resourceapi.ResourceSlice,
	claims []*resourceapi.ResourceClaim) ([]*resourceapi.ResourceSlice, error) {
	fits, all := p.fits(claims), choices(claims)
	var failed error
	fewer := changed(published, func(id Device, device resourceapi.Device) (resourceapi.Device, bool) {
		d := p.devices[id]
		if d == nil || d.Shared() || held.AllocatedDevices.Has(structured.MakeDeviceID(gpu.DriverName, id.Pool, id.Device)) {
			return device, true
		}
		ok, err := p.matches(ctx, d, all, fits)
		if failed == nil {
			failed = err
		}
		return device, ok
	})
	return fewer, failed
}

// fits is what is known of devices for claims.
func (p *Planner) fits(claims []*resourceapi.ResourceClaim) map[*cluster.Device]bool {
	var key strings.Builder
	for _, c := range choices(claims) {
		fmt.Fprintf(&key, "%s\n", c.Class)
		for _, s := range c.Selectors {
			fmt.Fprintf(&key, "%s\n", s.String())
		}
	}
	if p.known[key.String()] == nil {
		p.known[key.String()] = map[*cluster.Device]bool{}
	}
	return p.known[key.String()]
}

// matches tells whether a device is one of the choices. If a selector fails, the allocator is to say so.
func (p *Planner) matches(ctx context.Context, d *cluster.Device, choices []demand.Choice, known map[*cluster.Device]bool) (bool, error) {
	if ok, found := known[d]; found {
		return ok, nil
	}
	one := slices.ContainsFunc(choices, func(c demand.Choice) bool {
		class := p.cluster.DeviceClasses[c.Class]
		if class == nil {
			return true
		}
		ok, err := allocation.Matches(ctx, p.cluster.Selectors, d.CEL(), slices.Concat(class.Spec.Selectors, c.Selectors)...)
		return ok || err != nil
	})
	if err := ctx.Err(); err != nil {
		return false, err
	}
	known[d] = one
	return one, nil
}

// allocateOf is allocate with certain slices.
func (p *Planner) allocateOf(ctx context.Context, s *site, held allocated, published []*resourceapi.ResourceSlice,
	claims []*resourceapi.ResourceClaim) (results, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, allocation.Features, held, p.cluster.DeviceClasses, published, p.cluster.Selectors)
	if err != nil {
		return nil, fmt.Errorf("the scheduler's allocator: %w", err)
	}
	found, err := allocator.Allocate(ctx, s.node, claims)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the scheduler's allocator: %w", err)
	}
	var all results
	for _, r := range found {
		all = append(all, r.Devices.Results...)
	}
	return all, nil
}

// reserved are the slices of a node with some devices tainted.
func (s *site) reserved(devices []Device) []*resourceapi.ResourceSlice {
	taint := resourceapi.DeviceTaint{Key: v1alpha1.TaintReserved, Effect: resourceapi.DeviceTaintEffectNoSchedule}
	return changed(s.slices, func(d Device, device resourceapi.Device) (resourceapi.Device, bool) {
		if slices.Contains(devices, d) {
			device.Taints = append(slices.Clone(device.Taints), taint)
		}
		return device, true
	})
}

// changed copies slices, with devices of Tranche as f returns them and without those for which it
// returns false.
func changed(of []*resourceapi.ResourceSlice, f func(Device, resourceapi.Device) (resourceapi.Device, bool)) []*resourceapi.ResourceSlice {
	var out []*resourceapi.ResourceSlice
	for _, slice := range of {
		if slice.Spec.Driver == gpu.DriverName {
			copied := *slice
			copied.Spec.Devices = nil
			for _, device := range slice.Spec.Devices {
				if device, keep := f(Device{slice.Spec.Pool.Name, device.Name}, device); keep {
					copied.Spec.Devices = append(copied.Spec.Devices, device)
				}
			}
			slice = &copied
		}
		out = append(out, slice)
	}
	return out
}

// requests is what a pod requests of a node, which includes one of the pods that it can run.
func requests(pod *corev1.Pod) corev1.ResourceList {
	out := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

func subtract(from, what corev1.ResourceList) {
	for name, n := range what {
		if left, ok := from[name]; ok {
			left.Sub(n)
			from[name] = left
		}
	}
}

func add(to, what corev1.ResourceList) {
	for name, n := range what {
		if left, ok := to[name]; ok {
			left.Add(n)
			to[name] = left
		}
	}
}

// enough tells whether a node has what a pod requests. Devices of classes that are requested as
// resources are not the node's.
func enough(free, wanted corev1.ResourceList, extended map[corev1.ResourceName]string) bool {
	for name, n := range wanted {
		left, ok := free[name]
		_, device := extended[name]
		switch {
		case device || n.IsZero():
		case !ok && strings.Contains(string(name), "/"), ok && left.Cmp(n) < 0:
			return false
		}
	}
	return true
}

// open tells whether a node accepts a pod, and a pod the node.
func (s *site) open(g *guest) bool {
	if s.node.Spec.Unschedulable {
		return false
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(g.pod).Match(s.node); err != nil || !ok {
		return false
	}
	keepsAway := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	if _, found := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), s.node.Spec.Taints, g.pod.Spec.Tolerations, keepsAway, true); found {
		return false
	}
	return !slices.ContainsFunc(g.reach, func(n *nodeaffinity.NodeSelector) bool { return !n.Match(s.node) })
}
