package fit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Model is the cluster in which nodes are evaluated, with the input of the scheduler's allocator.
type Model struct {
	*cluster.Cluster
	objects cluster.Objects
	slices  []*resourceapi.ResourceSlice // with the taints of the rules
	bare    []*resourceapi.ResourceSlice // without any taints, when needed
	held    structured.AllocatedState
	// unsure is true if objects that could not be read may hold or taint what looks free.
	unsure bool
	// brief is true if only verdicts are needed.
	brief bool
}

// NewModel returns the model of a cluster. unsure is true if objects that could not be read may hold or
// taint what looks free.
func NewModel(o cluster.Objects, unsure bool) *Model {
	m := &Model{Cluster: cluster.New(o), objects: o, held: allocation.Nothing(), unsure: unsure}
	for i := range m.Tainted {
		m.slices = append(m.slices, &m.Tainted[i])
	}
	for i := range o.Claims {
		if result := o.Claims[i].Status.Allocation; result != nil {
			allocation.Hold(m.held, result.Devices.Results)
		}
	}
	return m
}

// NewNodeModel returns a model for verdicts about one node. It needs only the objects of the node, such
// as the claims that hold its devices.
func NewNodeModel(o cluster.Objects) *Model {
	m := NewModel(o, false)
	m.brief = true
	return m
}

// Judge returns whether a node can serve a demand. The verdict is Unclear if the context ends.
func (m *Model) Judge(ctx context.Context, node string, d *demand.Demand) Outcome {
	n := Node{Name: node, Verdict: Unusable} // it publishes no GPUs
	if slices.Contains(m.NodeNames(), node) {
		n = m.judge(ctx, node, cluster.Node{}, d)
	} else {
		m.addSwitch(&n)
	}
	if ctx.Err() != nil {
		return Outcome{Verdict: Unclear}
	}
	return n.Outcome()
}

// Nodes evaluates all nodes that publish GPUs, and others that matter. drawn describes their GPUs.
func (m *Model) Nodes(ctx context.Context, d *demand.Demand, drawn []cluster.Node) []Node {
	var out []Node
	for _, name := range m.NodeNames() {
		var picture cluster.Node
		if i := slices.IndexFunc(drawn, func(n cluster.Node) bool { return n.Name == name }); i >= 0 {
			picture = drawn[i]
		}
		out = append(out, m.judge(ctx, name, picture, d))
	}
	m.addWay(ctx, d, out)
	out = append(out, m.unpublished(out)...)
	return append(out, m.servedByPlugins(d, out)...)
}

func (m *Model) node(name string) *corev1.Node {
	if node := m.Node(name); node != nil {
		return node
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// matches reports whether selectors select a device.
func (m *Model) matches(ctx context.Context, d *cluster.Device, selectors []resourceapi.DeviceSelector) (bool, error) {
	ok, err := allocation.Matches(ctx, m.Selectors, d.CEL(), selectors...)
	var selector *allocation.SelectorError
	if errors.As(err, &selector) && selector.Compiles {
		err = fmt.Errorf("device %s: %w", d.Name, err)
	}
	return ok, err
}

// passes reports whether a device satisfies a choice, and how many selectors it passes before one that it
// does not. Those of the class count as one.
func (m *Model) passes(ctx context.Context, d *cluster.Device, ch demand.Choice) (passed int, all bool, err error) {
	class := m.DeviceClasses[ch.Class]
	if class == nil {
		return 0, false, nil
	}
	for i := range len(ch.Selectors) + 1 {
		selectors := class.Spec.Selectors
		if i > 0 {
			selectors = ch.Selectors[i-1 : i]
		}
		if ok, err := m.matches(ctx, d, selectors); err != nil || !ok {
			return i, false, err
		}
	}
	return len(ch.Selectors) + 1, true, nil
}

// OtherDrivers reports whether only other drivers can serve a pod's requests, and whether they may.
func (m *Model) OtherDrivers(ctx context.Context, d *demand.Demand) (only, perhaps bool) {
	only, perhaps = len(d.Unallocated) > 0, len(d.Unallocated) > 0
	d.EachRequest(func(_ *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		s := m.serving(ctx, r)
		only, perhaps = only && s == cluster.Others, perhaps && s != cluster.Ours
	})
	return only, perhaps
}

// serving returns who can serve a request. Whoever can serve an alternative can serve the request.
func (m *Model) serving(ctx context.Context, r resourceapi.DeviceRequest) cluster.Serving {
	out := cluster.Ours
	for _, ch := range demand.Choices(r) {
		switch s := m.Serving(ctx, ch.Class, ch.Selectors); s {
		case cluster.Others:
			return cluster.Others
		case cluster.OursPerhaps:
			out = s
		case cluster.Ours:
		}
	}
	return out
}
