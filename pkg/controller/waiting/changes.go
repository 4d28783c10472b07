package waiting

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

// changeSet is what has changed.
type changeSet struct {
	nodes  map[string]bool
	claims map[types.NamespacedName]bool
	// allNodes and allPods: something that concerns all of them.
	allNodes, allPods bool
}

// changes are what informers have reported since the last round.
type changes struct {
	// mu guards set.
	mu  sync.Mutex
	set changeSet
}

func (c *changes) take() changeSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.set
	c.set = changeSet{}
	return taken
}

func (c *changes) add(o client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := o.(type) {
	case *v1beta1.GPUNode, *corev1.Node:
		c.addNodes(o.GetName())
	case *metav1.PartialObjectMetadata: // a ResourceSlice
		c.addNodes(nodeOfSlice(o))
	case *resourceapi.ResourceClaim:
		c.addNodes(drain.NodesOf(o)...)
		if c.set.claims == nil {
			c.set.claims = map[types.NamespacedName]bool{}
		}
		c.set.claims[client.ObjectKeyFromObject(o)] = true
	case *resourceapi.DeviceTaintRule:
		if s := o.Spec.DeviceSelector; s != nil && s.Pool != nil {
			c.addNodes(*s.Pool)
		} else {
			c.set.allNodes = true
		}
	case *resourceapi.DeviceClass:
		c.set.allNodes, c.set.allPods = true, true
	}
}

func (c *changes) addNodes(all ...string) {
	if c.set.nodes == nil {
		c.set.nodes = map[string]bool{}
	}
	for _, name := range all {
		c.set.nodes[name] = true
	}
}

// handler has an informer report changes. What the informer begins with is no change.
func (c *changes) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if o, ok := o.(client.Object); ok && !initial {
				c.add(o)
			}
		},
		UpdateFunc: func(before, now any) {
			b, ok := before.(client.Object)
			n, ok2 := now.(client.Object)
			if ok && ok2 && hasChanged(b, n) {
				c.add(b)
				c.add(n)
			}
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if o, ok := o.(client.Object); ok {
				c.add(o)
			}
		},
	}
}

// hasChanged reports whether an object has changed. Of a Node, only what decides which pods it accepts counts.
func hasChanged(before, now client.Object) bool {
	b, ok := before.(*corev1.Node)
	n, ok2 := now.(*corev1.Node)
	if !ok || !ok2 {
		return before.GetResourceVersion() != now.GetResourceVersion()
	}
	same := equality.Semantic.DeepEqual
	return !same(b.Labels, n.Labels) || b.Spec.Unschedulable != n.Spec.Unschedulable ||
		!same(b.Spec.Taints, n.Spec.Taints) || !same(b.Status.Allocatable, n.Status.Allocatable)
}

// nodeOfSlice returns the node that owns a slice, empty if none does.
func nodeOfSlice(o client.Object) string {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Node" {
			return owner.Name
		}
	}
	return ""
}
