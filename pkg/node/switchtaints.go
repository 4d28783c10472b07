package node

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/profile"
)

const (
	// orderPatience is how long the first publication waits for the GPUNode, which may
	// order taints.
	orderPatience = 30 * time.Second
	// orderInterval is how often it is tried to read it.
	orderInterval = 200 * time.Millisecond
	// shapesBudget is how long the GPUs may take to tell which partitions they have, when
	// it is worked out which devices a profile does not offer.
	shapesBudget = 5 * time.Second
)

// taintOrder is which devices are tainted while the node is switched to another profile.
// The zero value taints none.
type taintOrder struct {
	// by is the switch that orders it; zero: the taints of an earlier run are kept,
	// because the GPUNode cannot be read.
	by v1alpha1.PublishedTaints
	// value is that of the taints.
	value string
	// gpus are the names of the GPUs of which all devices are tainted.
	gpus []string
	// withhold: those devices of gpus that no claim holds are not published.
	withhold bool
	// offers has, by the name of a GPU, the shape that it is about to get. The devices
	// that it does not offer are tainted.
	offers map[string]profile.Shape
	// devices are the names of single devices that are tainted.
	devices []string
}

func (o *taintOrder) taint() resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: v1alpha1.TaintRepartitioning, Value: o.value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
}

// all tells whether all devices of a GPU are tainted.
func (o *taintOrder) all(name string) bool { return slices.Contains(o.gpus, name) }

// single tells whether one device of a GPU is tainted of which not all are.
func (o *taintOrder) single(name string, p gpu.Placement) bool {
	if o.all(name) {
		return false
	}
	shape, shrinks := o.offers[name]
	return shrinks && !shape.Offers(p) || slices.Contains(o.devices, p.Name())
}

// taintOrder is what a GPUNode orders. Names of GPUs that the node does not have order
// nothing. It remembers the last answer, which may need the GPUs.
func (f *follower) taintOrder(ctx context.Context, status *v1alpha1.GPUNodeStatus) taintOrder {
	if !status.OrdersTaints() {
		f.orderedBy, f.order = nil, taintOrder{}
		return f.order
	}
	sw := &v1alpha1.Switch{
		ID: status.Switch.ID, Order: status.Switch.Order, To: status.Switch.To,
		GPUs: status.Switch.GPUs, Shrinking: status.Switch.Shrinking, Withhold: status.Switch.Withhold,
	}
	if reflect.DeepEqual(sw, f.orderedBy) {
		return f.order
	}
	f.orderedBy = sw
	f.order = taintOrder{
		by:       v1alpha1.PublishedTaints{Switch: sw.ID, Order: sw.Order},
		value:    v1alpha1.RepartitioningTaintValue(sw.To.Profile),
		gpus:     slices.Clone(sw.GPUs),
		withhold: sw.Withhold,
	}
	f.shrink(ctx, sw)
	return f.order
}

// shrink adds to the order the devices that GPUs are about to lose. Where it is not known
// which these are, because the profile does not fit the node, all of them are tainted:
// the switch will be given up.
func (f *follower) shrink(ctx context.Context, sw *v1alpha1.Switch) {
	byName := map[string]string{}
	for _, g := range f.roster.All() {
		if slices.Contains(sw.Shrinking, g.Name()) {
			byName[g.Name()] = g.PCIAddress
		}
	}
	if len(byName) == 0 {
		return
	}
	var of []string
	for _, address := range byName {
		of = append(of, address)
	}
	ctx, cancel := context.WithTimeout(ctx, shapesBudget)
	defer cancel()
	shapes, err := f.profile.Shapes(ctx, sw.To, of)
	if err != nil {
		klog.FromContext(ctx).Info("It is not known which devices the profile does not offer, so all devices of these GPUs are tainted", "gpus", sw.Shrinking, "err", err)
		f.order.gpus = append(f.order.gpus, sw.Shrinking...)
		return
	}
	f.order.offers = map[string]profile.Shape{}
	for name, address := range byName {
		f.order.offers[name] = shapes[address]
	}
}

// firstOrder finds out which taints are ordered, before anything is published in this
// run: devices that an earlier run tainted must not be untainted for a moment. A node
// without a GPUNode, or a cluster without the CRD, orders none. Where the GPUNode cannot
// be read in time, the taints stay as they are published.
func (p *plugin) firstOrder(ctx context.Context) {
	patience := time.Now().Add(cmp.Or(p.Config.orderPatience, orderPatience))
	_ = wait.PollUntilContextCancel(ctx, orderInterval, true, func(ctx context.Context) (bool, error) {
		err := p.follow.readOrder(ctx)
		if err != nil && time.Now().After(patience) {
			klog.FromContext(ctx).Error(err, "The node's GPUNode cannot be read; the taints of its devices stay as they are")
			err = p.keepTaints(ctx)
		}
		return err == nil, nil
	})
}

// readOrder takes in the order of the GPUNode as the API server has it now.
func (f *follower) readOrder(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, nodewatch.SyncTimeout)
	defer cancel()
	// The plugin may list GPUNodes, and not get one.
	list, err := f.nodes.List(reading, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.NodeName).String()})
	if apierrors.IsNotFound(err) {
		err, list = nil, &v1alpha1.GPUNodeList{} // there is no CRD
	}
	if err != nil {
		return err
	}
	var order taintOrder
	for i := range list.Items {
		if node := &list.Items[i]; node.Name == f.NodeName {
			f.readVersion, order = node.ResourceVersion, f.taintOrder(ctx, &node.Status)
		}
	}
	f.publisher.setOrder(ctx, order)
	return nil
}

// keepTaints orders the taints that the API server has already.
func (p *plugin) keepTaints(ctx context.Context) error {
	published, err := p.ownSlices(ctx)
	if err != nil {
		return err
	}
	p.publisher.setOrder(ctx, keptTaints(p.gpus.Now(), published))
	return nil
}

// keptTaints is the order that published slices carry out.
func keptTaints(gpus []gpu.GPU, published []resourceapi.ResourceSlice) taintOrder {
	var o taintOrder
	for i := range gpus {
		name, total := gpus[i].Name(), 0
		var tainted []string
		for _, s := range published {
			for _, d := range s.Spec.Devices {
				if d.Name != name && !strings.HasPrefix(d.Name, name+"-") {
					continue
				}
				total++
				at := slices.IndexFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == v1alpha1.TaintRepartitioning })
				if at >= 0 {
					tainted, o.value = append(tainted, d.Name), d.Taints[at].Value
				}
			}
		}
		switch {
		case total == 0 && len(published) > 0:
			o.gpus = append(o.gpus, name) // All of its devices may have been withheld.
		case len(tainted) == 0:
		case len(tainted) == total:
			o.gpus = append(o.gpus, name)
		default:
			o.devices = append(o.devices, tainted...)
		}
	}
	return o
}

// confirmTaints tells whether the API server has accepted the taints that are ordered
// now. It remembers which were accepted last: what has once been accepted stays
// published while a switch orders it.
func (f *follower) confirmTaints(ctx context.Context) bool {
	by, ok := f.publisher.sentFor()
	if by == (v1alpha1.PublishedTaints{}) {
		f.taints = nil
		return false
	}
	if !ok {
		return false
	}
	if f.taints != nil && *f.taints == by {
		return true
	}
	published, err := f.ownSlices(ctx)
	if err != nil || !f.publisher.matches(published) {
		return false
	}
	if now, ok := f.publisher.sentFor(); !ok || now != by {
		return false
	}
	f.taints, f.taintedAt = &by, time.Now()
	return true
}

// awaitTaints waits, for a while, until the API server has accepted the ordered taints,
// and then until schedulers have noticed.
func (f *follower) awaitTaints(ctx context.Context) bool {
	waiting, cancel := context.WithTimeout(ctx, publishedPatience)
	defer cancel()
	err := wait.PollUntilContextCancel(waiting, publishedInterval, true, func(ctx context.Context) (bool, error) {
		return f.confirmTaints(ctx), nil
	})
	if err != nil {
		klog.FromContext(ctx).Info("The API server does not have the taints of the switch yet, so the plan is not made yet")
		return false
	}
	settled := time.NewTimer(time.Until(f.taintedAt.Add(cmp.Or(f.Config.taintSettle, taintSettle))))
	defer settled.Stop()
	select {
	case <-settled.C:
		return true
	case <-ctx.Done():
		return false
	}
}
