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
	"github.com/tranche-dev/tranche/pkg/gpu"
)

type allocated = structured.AllocatedState

// callPatience limits one call of the allocator, which tries every combination of many devices.
const callPatience = 500 * time.Millisecond

// allocate asks the scheduler's allocator what claims get on a node. It returns nil if they do not
// fit.
func (p *Planner) allocate(ctx context.Context, s *site, held allocated, published []*resourceapi.ResourceSlice,
	claims []*resourceapi.ResourceClaim) ([]resourceapi.DeviceRequestAllocationResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, allocation.Features, held, p.cluster.DeviceClasses, published, p.cluster.Selectors)
	if err != nil {
		return nil, fmt.Errorf("the scheduler's allocator: %w", err)
	}
	results, err := allocator.Allocate(ctx, s.node, claims)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the scheduler's allocator: %w", err)
	}
	var all []resourceapi.DeviceRequestAllocationResult
	for _, r := range results {
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
