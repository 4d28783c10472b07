package defragment

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// pageSize is the number of objects in one response of the API server. All objects of a large cluster at once
// would need more memory than the controller may use.
const pageSize = 500

// each lists objects page by page, without their managed fields. empty is an empty list of them.
func each[T client.Object](ctx context.Context, reader client.Reader, empty client.ObjectList, use func(T), options ...client.ListOption) error {
	for next := ""; ; {
		list, ok := empty.DeepCopyObject().(client.ObjectList)
		if !ok {
			return fmt.Errorf("%T is no list", empty)
		}
		if err := reader.List(ctx, list, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			object, ok := o.(T)
			if !ok {
				return fmt.Errorf("a list of %T has a %T", object, o)
			}
			object.SetManagedFields(nil)
			use(object)
			return nil
		})
		if next = list.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}

// addTo returns what appends the objects that are needed; nil: all.
func addTo[T any](to *[]T, isNeeded func(*T) bool) func(*T) {
	return func(o *T) {
		if isNeeded == nil || isNeeded(o) {
			*to = append(*to, *o)
		}
	}
}

// needed is what a plan needs of the objects of the whole cluster.
type needed struct {
	// nodes are the nodes that were read, pools the pools of other drivers with devices there.
	nodes map[string]bool
	pools map[[2]string]bool
	// claims are those of the waiting pods, templates and namespaces those of all pods.
	claims, templates map[types.NamespacedName]bool
	namespaces        map[string]bool
}

func neededBy(in *defrag.Input, waiting []*corev1.Pod) *needed {
	n := &needed{
		nodes: map[string]bool{}, pools: map[[2]string]bool{},
		claims: map[types.NamespacedName]bool{}, templates: map[types.NamespacedName]bool{}, namespaces: map[string]bool{},
	}
	for i := range in.Nodes {
		n.nodes[in.Nodes[i].Name] = true
	}
	for i := range in.Slices {
		n.pools[[2]string{in.Slices[i].Spec.Driver, in.Slices[i].Spec.Pool.Name}] = true
	}
	for _, pod := range waiting {
		for name := range resourceclaim.PodClaims(pod) {
			n.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}] = true
		}
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		n.namespaces[pod.Namespace] = true
		for _, c := range pod.Spec.ResourceClaims {
			if c.ResourceClaimTemplateName != nil {
				n.templates[types.NamespacedName{Namespace: pod.Namespace, Name: *c.ResourceClaimTemplateName}] = true
			}
		}
	}
	return n
}

func (n *needed) claim(c *resourceapi.ResourceClaim) bool {
	if c.Status.Allocation == nil {
		return n.claims[client.ObjectKeyFromObject(c)]
	}
	return n.claims[client.ObjectKeyFromObject(c)] || slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		if r.Driver == names.DriverName {
			return n.nodes[r.Pool]
		}
		return n.pools[[2]string{r.Driver, r.Pool}]
	})
}

func (n *needed) template(t *resourceapi.ResourceClaimTemplate) bool {
	return n.templates[client.ObjectKeyFromObject(t)]
}

func (n *needed) budget(b *policyv1.PodDisruptionBudget) bool { return n.namespaces[b.Namespace] }

// trimPod copies what a plan needs of a pod.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	out := *pod
	out.ManagedFields, out.Annotations = nil, nil
	out.Spec.InitContainers, out.Spec.Containers = trimContainers(pod.Spec.InitContainers), trimContainers(pod.Spec.Containers)
	out.Spec.EphemeralContainers, out.Status.EphemeralContainerStatuses = nil, nil
	out.Status.InitContainerStatuses, out.Status.ContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses), trimStatuses(pod.Status.ContainerStatuses)
	return &out
}

func trimContainers(all []corev1.Container) (out []corev1.Container) {
	for i := range all {
		c := &all[i]
		out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
	}
	return out
}

func trimStatuses(all []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	for i := range all {
		s := &all[i]
		out = append(out, corev1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources})
	}
	return out
}
