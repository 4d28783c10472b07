package why

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// world is the cluster, with the input of the scheduler's allocator.
type world struct {
	*cluster.Cluster
	in     *Input
	slices []*resourceapi.ResourceSlice // with the taints of the rules
	bare   []*resourceapi.ResourceSlice // without any taints, when needed
	held   structured.AllocatedState
	// brief: only verdicts are needed.
	brief bool
}

func newWorld(in *Input) *world {
	c := &world{Cluster: cluster.New(in.Objects), in: in, held: allocation.Nothing()}
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

// nodes lists the nodes that publish GPUs. Nodes that could not be read have only a name.
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

// matches tells whether the selectors of a class or a request choose a device.
func (c *world) matches(ctx context.Context, d *cluster.Device, selectors []resourceapi.DeviceSelector) (bool, error) {
	ok, err := allocation.Matches(ctx, c.Selectors, d.CEL(), selectors...)
	var selector *allocation.SelectorError
	if errors.As(err, &selector) && selector.Compiles {
		err = fmt.Errorf("device %s: %w", d.Name, err)
	}
	return ok, err
}
