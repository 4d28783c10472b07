package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// wishes is what a pod asks for.
type wishes struct {
	// open are claims without devices, given those that have them.
	open, given []*resourceapi.ResourceClaim
	// missing says which claims are not there, and why.
	missing []string
	// extended are the resources of which devices stand in for, by class.
	extended map[corev1.ResourceName]string
}

// wishesOf finds the pod's claims.
func wishesOf(in *Input) wishes {
	w := wishes{extended: map[corev1.ResourceName]string{}}
	byName := map[string]*resourceapi.ResourceClaim{}
	for i, c := range in.Claims {
		if c.Namespace == in.Pod.Namespace {
			byName[c.Name] = &in.Claims[i]
		}
	}
	add := func(c *resourceapi.ResourceClaim) {
		if c.Status.Allocation == nil {
			w.open = append(w.open, c)
		} else {
			w.given = append(w.given, c)
		}
	}
	for i := range in.Pod.Spec.ResourceClaims {
		want := &in.Pod.Spec.ResourceClaims[i]
		name, mustOwn, err := resourceclaim.Name(in.Pod, want)
		if err != nil {
			w.missing = append(w.missing, notMade(in, want, err))
			continue
		}
		if name == nil {
			continue // the template says that none is needed
		}
		claim := byName[*name]
		if claim == nil {
			w.missing = append(w.missing, fmt.Sprintf("the claim %s does not exist in the namespace %s.", *name, in.Pod.Namespace))
			continue
		}
		if mustOwn {
			if err := resourceclaim.IsForPod(in.Pod, claim, true); err != nil {
				w.missing = append(w.missing, fmt.Sprintf("the claim %s belongs to another pod: %v.", *name, err))
				continue
			}
		}
		add(claim)
	}
	w.addExtended(in, byName, add)
	return w
}

// notMade says why a claim was not made of its template.
func notMade(in *Input, want *corev1.PodResourceClaim, err error) string {
	if want.ResourceClaimTemplateName == nil {
		return fmt.Sprintf("the claim of %q cannot be found: %v.", want.Name, err)
	}
	template := *want.ResourceClaimTemplateName
	named := func(t resourceapi.ResourceClaimTemplate) bool { return t.Name == template }
	if in.Templates != nil && !slices.ContainsFunc(in.Templates, named) {
		return fmt.Sprintf("the pod names the ResourceClaimTemplate %s, which does not exist in the namespace %s.", template, in.Pod.Namespace)
	}
	return fmt.Sprintf("the claim of %q has not been created from the ResourceClaimTemplate %s yet; kube-controller-manager creates it.", want.Name, template)
}

// addExtended adds what is asked for by resource name. The scheduler makes the
// claim when it has found a node; until then it is put together here, as there.
func (w *wishes) addExtended(in *Input, byName map[string]*resourceapi.ResourceClaim, add func(*resourceapi.ResourceClaim)) {
	resolver := extendedresourcecache.NewExtendedResourceCache(logr.Discard())
	for i := range in.Classes {
		resolver.OnAdd(&in.Classes[i], true)
	}
	for _, c := range containers(in.Pod) {
		for name, quantity := range c.Resources.Requests {
			if class := resolver.GetDeviceClass(name); class != nil && !quantity.IsZero() {
				w.extended[name] = class.Name
			}
		}
	}
	if status := in.Pod.Status.ExtendedResourceClaimStatus; status != nil {
		if claim := byName[status.ResourceClaimName]; claim != nil {
			add(claim)
			return
		}
	}
	if len(w.extended) == 0 || in.Pod.Spec.NodeName != "" {
		return
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: in.Pod.Namespace}}
	for i, name := range slices.Sorted(maps.Keys(w.extended)) {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, extendedRequests(in.Pod, i, name, w.extended[name])...)
	}
	add(claim)
}

// extendedRequests has one request for each container that runs on. An init
// container may use theirs, and asks for what they lack.
func extendedRequests(pod *corev1.Pod, index int, name corev1.ResourceName, class string) []resourceapi.DeviceRequest {
	var out []resourceapi.DeviceRequest
	sum, initial, suffix := int64(0), int64(0), ""
	if index > 0 {
		suffix = fmt.Sprintf("-%d", index+1)
	}
	request := func(container string, n int64) {
		out = append(out, resourceapi.DeviceRequest{
			Name: container + suffix,
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: n,
			},
		})
		sum += n
	}
	for i, c := range containers(pod) {
		quantity := c.Resources.Requests[name]
		n := quantity.Value()
		sidecar := ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
		switch {
		case i < len(pod.Spec.InitContainers) && !sidecar:
			initial = max(initial, n)
		case n > 0:
			request(c.Name, n)
		}
	}
	if initial > sum {
		request("init", initial-sum)
	}
	return out
}

// resource is the name by which devices of a class were asked for.
func (w wishes) resource(class string) string {
	for _, name := range slices.Sorted(maps.Keys(w.extended)) {
		if w.extended[name] == class {
			return string(name)
		}
	}
	return "extended resource"
}

func containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// choice is a request, or one of the alternatives of a request.
type choice struct {
	name      string
	class     string
	selectors []resourceapi.DeviceSelector
	all       bool
	count     int64
	admin     bool
	tolerates []resourceapi.DeviceToleration
	// amounts is what it names of devices that several claims hold at once.
	amounts map[resourceapi.QualifiedName]resource.Quantity
}

// choices lists what would satisfy a request, the most wanted first.
func choices(r resourceapi.DeviceRequest) []choice {
	if e := r.Exactly; e != nil {
		return []choice{{
			name: r.Name, class: e.DeviceClassName, selectors: e.Selectors, count: max(1, e.Count), tolerates: e.Tolerations,
			all: e.AllocationMode == resourceapi.DeviceAllocationModeAll, admin: ptr.Deref(e.AdminAccess, false),
			amounts: amountsOf(e.Capacity),
		}}
	}
	var out []choice
	for _, s := range r.FirstAvailable {
		out = append(out, choice{
			name: r.Name + "/" + s.Name, class: s.DeviceClassName, selectors: s.Selectors, count: max(1, s.Count), tolerates: s.Tolerations,
			all: s.AllocationMode == resourceapi.DeviceAllocationModeAll, amounts: amountsOf(s.Capacity),
		})
	}
	return out
}

func amountsOf(c *resourceapi.CapacityRequirements) map[resourceapi.QualifiedName]resource.Quantity {
	if c == nil {
		return nil
	}
	return c.Requests
}

// named says in words what a choice names of a share: "20Gi of memory".
func (ch choice) named() string {
	texts := map[string]string{}
	for name, q := range ch.amounts {
		texts[string(name)] = q.String()
	}
	return strings.Join(cluster.Amounts(texts, true), ", ")
}
