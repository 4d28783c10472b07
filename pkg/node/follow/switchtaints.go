package follow

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/profile"
)

const (
	// taintsPatience is how long the first publication waits for the GPUNode, which may
	// request taints; taintsInterval is how often reading it is retried.
	taintsPatience = 30 * time.Second
	taintsInterval = 200 * time.Millisecond
	// layoutsBudget limits how long reading the partitions of the GPUs may take, to compute
	// which devices a profile does not offer.
	layoutsBudget = 5 * time.Second
)

// desiredTaints returns the taints that a GPUNode requests. Names of GPUs that the node does not have are
// ignored. It caches the last ones, because computing them may need the GPUs.
func (f *Follower) desiredTaints(ctx context.Context, status *v1beta1.GPUNodeStatus) publisher.SwitchTaints {
	if !status.RequestsTaints() {
		f.taintsFrom, f.taints = nil, publisher.SwitchTaints{}
		return f.taints
	}
	sw := &v1beta1.Switch{
		ID: status.Switch.ID, TaintGeneration: status.Switch.TaintGeneration, To: status.Switch.To,
		GPUs: status.Switch.GPUs, ShrinkingGPUs: status.Switch.ShrinkingGPUs, Withhold: status.Switch.Withhold,
	}
	if reflect.DeepEqual(sw, f.taintsFrom) {
		return f.taints
	}
	f.taintsFrom = sw
	f.taints = publisher.SwitchTaints{
		By:       v1beta1.PublishedTaints{SwitchID: sw.ID, TaintGeneration: sw.TaintGeneration},
		Value:    sw.To.ProfileName,
		GPUs:     slices.Clone(sw.GPUs),
		Withhold: sw.Withhold,
	}
	f.shrink(ctx, sw)
	return f.taints
}

// shrink adds the devices that GPUs are about to lose to the taints. If the profile does not
// fit the node, these are not known, and all devices are tainted: the switch will fail.
func (f *Follower) shrink(ctx context.Context, sw *v1beta1.Switch) {
	byName := map[string]string{}
	for _, g := range f.Roster.All() {
		if slices.Contains(sw.ShrinkingGPUs, g.Name()) {
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
	ctx, cancel := context.WithTimeout(ctx, layoutsBudget)
	defer cancel()
	layouts, err := f.Profile.Layouts(ctx, sw.To, of)
	if err != nil {
		klog.FromContext(ctx).Info("Cannot tell which devices the profile does not offer, so all devices of these GPUs are tainted", "gpus", sw.ShrinkingGPUs, "err", err)
		f.taints.GPUs = append(f.taints.GPUs, sw.ShrinkingGPUs...)
		return
	}
	f.taints.Offers = map[string]profile.Layout{}
	for name, address := range byName {
		f.taints.Offers[name] = layouts[address]
	}
}

// FirstTaints reads the requested taints before the first publication, so that devices that an
// earlier run tainted stay tainted. Without a GPUNode or its CRD there are none. If the
// GPUNode cannot be read in time, the published taints stay.
func (f *Follower) FirstTaints(ctx context.Context) {
	patience := time.Now().Add(cmp.Or(f.TaintsPatience, taintsPatience))
	_ = wait.PollUntilContextCancel(ctx, taintsInterval, true, func(ctx context.Context) (bool, error) {
		err := f.readTaints(ctx)
		if err != nil && time.Now().After(patience) {
			klog.FromContext(ctx).Error(err, "Cannot read the GPUNode of the node, so the taints of its devices stay as they are")
			err = f.Publisher.KeepTaints(ctx)
		}
		return err == nil, nil
	})
}

// readTaints reads the requested taints from the API server.
func (f *Follower) readTaints(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, inventory.SyncTimeout)
	defer cancel()
	// The plugin's role allows it to list GPUNodes, not to get one.
	list, err := f.Nodes.List(reading, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.Node.Name).String()})
	if apierrors.IsNotFound(err) {
		err, list = nil, &v1beta1.GPUNodeList{} // no CRD
	}
	if err != nil {
		return err
	}
	var taints publisher.SwitchTaints
	var defragmentation *v1beta1.Defragmentation
	for i := range list.Items {
		if node := &list.Items[i]; node.Name == f.Node.Name {
			f.readVersion, taints = node.ResourceVersion, f.desiredTaints(ctx, &node.Status)
			defragmentation = node.Status.Defragmentation
		}
	}
	f.Publisher.SetSwitchTaints(ctx, taints)
	f.reserve(ctx, defragmentation)
	return nil
}

// confirmTaints reports whether the API server has accepted the taints of the current switch. It
// remembers that: accepted taints stay published while a switch requests them.
func (f *Follower) confirmTaints(ctx context.Context) bool {
	by, ok := f.Publisher.PublishedFor()
	if by == (v1beta1.PublishedTaints{}) {
		f.accepted = nil
		return false
	}
	if !ok {
		return false
	}
	if f.accepted != nil && *f.accepted == by {
		return true
	}
	published, err := f.Publisher.Stored(ctx)
	if err != nil || !f.Publisher.Matches(published) {
		return false
	}
	if now, ok := f.Publisher.PublishedFor(); !ok || now != by {
		return false
	}
	f.accepted, f.acceptedAt = &by, time.Now()
	return true
}

// awaitTaints waits until the API server has accepted the taints of the current switch, and
// schedulers have noticed them. It returns false if the former takes too long.
func (f *Follower) awaitTaints(ctx context.Context) bool {
	waiting, cancel := context.WithTimeout(ctx, publishedPatience)
	defer cancel()
	err := wait.PollUntilContextCancel(waiting, publishedInterval, true, func(ctx context.Context) (bool, error) {
		return f.confirmTaints(ctx), nil
	})
	if err != nil {
		klog.FromContext(ctx).Info("The API server does not have the taints of the switch yet, so there is no plan yet")
		return false
	}
	settled := time.NewTimer(time.Until(f.acceptedAt.Add(cmp.Or(f.TaintSettle, taintSettle))))
	defer settled.Stop()
	select {
	case <-settled.C:
		return true
	case <-ctx.Done():
		return false
	}
}
