package demand

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// Input is a pod with the objects that its claims and volumes depend on. Claims may include other
// namespaces.
type Input struct {
	Pod    *corev1.Pod
	Claims []resourceapi.ResourceClaim
	// Templates are those of the pod's namespace, nil if they could not be read.
	Templates []resourceapi.ResourceClaimTemplate
	Classes   []resourceapi.DeviceClass
	Storage   Storage
}

// Demand is what a pod requests, and what decides which nodes it accepts.
type Demand struct {
	// Unallocated are the pod's claims without devices, Allocated those that have them.
	Unallocated, Allocated []*resourceapi.ResourceClaim
	// Missing has a sentence for each claim that does not exist or belongs to another pod.
	Missing []string
	// Extended maps extended resources to the DeviceClass that satisfies them.
	Extended map[corev1.ResourceName]string
	// Volumes are the pod's PersistentVolumeClaims.
	Volumes []Volume
	Pod     *corev1.Pod
}

// Of returns what a pod requests.
func Of(in Input) *Demand {
	d := &Demand{Extended: map[corev1.ResourceName]string{}, Volumes: Volumes(in.Pod, in.Storage), Pod: in.Pod}
	byName := map[string]*resourceapi.ResourceClaim{}
	for i, c := range in.Claims {
		if c.Namespace == in.Pod.Namespace {
			byName[c.Name] = &in.Claims[i]
		}
	}
	for i := range in.Pod.Spec.ResourceClaims {
		want := &in.Pod.Spec.ResourceClaims[i]
		name, mustOwn, err := resourceclaim.Name(in.Pod, want)
		switch {
		case err != nil:
			d.addMissing("%s", missingClaim(in, want, err))
		case name == nil: // no claim is needed
		case byName[*name] == nil:
			d.addMissing("the claim %s does not exist in the namespace %s.%s", *name, in.Pod.Namespace, templateNamed(in, *name))
		default:
			if err := resourceclaim.IsForPod(in.Pod, byName[*name], true); mustOwn && err != nil {
				d.addMissing("the claim %s belongs to another pod: %v.", *name, err)
				continue
			}
			d.add(byName[*name])
		}
	}
	d.addExtended(in, byName)
	return d
}

// templateNamed says that a template has the name of a claim that does not exist.
func templateNamed(in Input, name string) string {
	if !slices.ContainsFunc(in.Templates, func(t resourceapi.ResourceClaimTemplate) bool { return t.Name == name }) {
		return ""
	}
	return " There is a ResourceClaimTemplate of this name: name it by resourceClaimTemplateName."
}

func (d *Demand) addMissing(format string, args ...any) {
	d.Missing = append(d.Missing, fmt.Sprintf(format, args...))
}

func (d *Demand) add(c *resourceapi.ResourceClaim) {
	if c.Status.Allocation == nil {
		d.Unallocated = append(d.Unallocated, c)
	} else {
		d.Allocated = append(d.Allocated, c)
	}
}

// EachRequest calls f for each request that is not allocated, with its claim.
func (d *Demand) EachRequest(f func(*resourceapi.ResourceClaim, resourceapi.DeviceRequest)) {
	for _, claim := range d.Unallocated {
		for _, r := range claim.Spec.Devices.Requests {
			f(claim, r)
		}
	}
}

// Deleted has a sentence for each claim that is being deleted.
func (d *Demand) Deleted() (out []string) {
	for _, claim := range d.Unallocated {
		if claim.DeletionTimestamp != nil {
			out = append(out, fmt.Sprintf("the claim %s is being deleted.", claim.Name))
		}
	}
	return out
}

// Invalid has a sentence for each claim or DeviceClass that no node can ever satisfy, because it is
// being deleted or does not exist. classes is nil if they could not be read.
func (d *Demand) Invalid(classes []resourceapi.DeviceClass) []string {
	out := d.Deleted()
	there := lists.Map(classes, func(c resourceapi.DeviceClass) string { return c.Name })
	d.EachRequest(func(_ *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		for _, ch := range Choices(r) {
			if classes != nil && !slices.Contains(there, ch.Class) {
				out = lists.Union(out, "there is no DeviceClass "+ch.Class+strict.DidYouMean(ch.Class, there))
			}
		}
	})
	return out
}

// missingClaim explains why a claim was not created from its template.
func missingClaim(in Input, want *corev1.PodResourceClaim, err error) string {
	if want.ResourceClaimTemplateName == nil {
		return fmt.Sprintf("the claim of %q cannot be found: %v.", want.Name, err)
	}
	template := *want.ResourceClaimTemplateName
	if in.Templates == nil {
		return fmt.Sprintf("the claim of %q has not been created. Whether the ResourceClaimTemplate %s exists is not known.", want.Name, template)
	}
	there := lists.Map(in.Templates, func(t resourceapi.ResourceClaimTemplate) string { return t.Name })
	if !slices.Contains(there, template) {
		return fmt.Sprintf("the pod names the ResourceClaimTemplate %s, which does not exist in the namespace %s", template, in.Pod.Namespace) + strict.DidYouMean(template, there)
	}
	return fmt.Sprintf("the claim of %q has not been created from the ResourceClaimTemplate %s yet; kube-controller-manager creates it.", want.Name, template)
}

// addExtended adds extended resources. The scheduler creates their claim when it has found a node.
// Until then, addExtended adds an equal one.
func (d *Demand) addExtended(in Input, byName map[string]*resourceapi.ResourceClaim) {
	resolver := extendedresourcecache.NewExtendedResourceCache(logr.Discard())
	for i := range in.Classes {
		resolver.OnAdd(&in.Classes[i], true)
	}
	for _, c := range Containers(in.Pod) {
		for name, quantity := range c.Resources.Requests {
			if class := resolver.GetDeviceClass(name); class != nil && !quantity.IsZero() {
				d.Extended[name] = class.Name
			}
		}
	}
	if status := in.Pod.Status.ExtendedResourceClaimStatus; status != nil {
		if claim := byName[status.ResourceClaimName]; claim != nil {
			d.add(claim)
			return
		}
	}
	if len(d.Extended) == 0 || in.Pod.Spec.NodeName != "" {
		return
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: in.Pod.Namespace}}
	for i, name := range slices.Sorted(maps.Keys(d.Extended)) {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, extendedRequests(in.Pod, i, name, d.Extended[name])...)
	}
	d.add(claim)
}

// extendedRequests returns the requests for an extended resource, one for each container. Init
// containers use the same devices. If they need more, there is a request for the rest.
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
	for i, c := range Containers(pod) {
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

// Resource returns the extended resource by which the pod requests devices of a class.
func (d *Demand) Resource(class string) string {
	for _, name := range slices.Sorted(maps.Keys(d.Extended)) {
		if d.Extended[name] == class {
			return string(name)
		}
	}
	return "extended resource"
}

// Containers returns the init containers and the containers of a pod.
func Containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}
