package why

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// world is the cluster, and what the scheduler's allocator needs to know of it.
type world struct {
	*cluster.Cluster
	in     *Input
	slices []*resourceapi.ResourceSlice // with the taints of the rules
	bare   []*resourceapi.ResourceSlice // without any taints, when needed
	cel    *cel.Cache
	held   structured.AllocatedState
}

func newWorld(in *Input) *world {
	c := &world{Cluster: cluster.New(in.Objects), in: in, cel: allocation.NewCache(100), held: allocation.Nothing()}
	for i := range c.Tainted {
		c.slices = append(c.slices, &c.Tainted[i])
	}
	for i := range in.Claims {
		if result := in.Claims[i].Status.Allocation; result != nil {
			allocation.Hold(c.held, result.Devices.Results)
		}
	}
	return c
}

// nodes lists the nodes that publish GPUs. Of a node that could not be read only the name
// is known.
func (c *world) nodes() []*corev1.Node {
	var out []*corev1.Node
	for _, name := range c.NodeNames() {
		node := c.Node(name)
		if node == nil {
			node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		out = append(out, node)
	}
	return out
}

// selectorError is about a selector that cannot be evaluated: to correct it is up to the person
// who wrote the claim or the class.
type selectorError struct{ error }

func (e *selectorError) Unwrap() error { return e.error }

// matches tells whether the selectors of a class and a request choose a device.
func (c *world) matches(ctx context.Context, d *cluster.Device, selectors []resourceapi.DeviceSelector) (bool, error) {
	for _, s := range selectors {
		if s.CEL == nil {
			continue
		}
		compiled := c.cel.GetOrCompile(s.CEL.Expression)
		if compiled.Error != nil {
			return false, &selectorError{fmt.Errorf("the selector %q is wrong: %w", s.CEL.Expression, compiled.Error)}
		}
		ok, _, err := compiled.DeviceMatches(ctx, cel.Device{
			Driver: d.Pool.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations,
			Attributes: d.Attributes, Capacity: d.Capacity,
		})
		if err != nil {
			return false, &selectorError{fmt.Errorf("the selector %q fails on device %s, and with it every attempt to schedule the pod: %w",
				s.CEL.Expression, d.Name, err)}
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}
