package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/api/names"
)

// restrict publishes whole GPUs only from now on, because the API server drops counters.
func (p *Publisher) restrict(ctx context.Context) {
	if !p.first(&p.wholeOnly) {
		return
	}
	p.Events.Warn(ctx, names.EventPartitionsNotPublished, "The cluster's API server drops the counters that keep partitions apart (feature gate DRAPartitionableDevices is off), so Tranche publishes whole GPUs only."+p.withoutWhole()+" Turn the gate on, which is the default from Kubernetes 1.36 on, and restart the plugin")
	p.Publish(ctx)
}

// first sets a restriction, and reports whether it was unset before.
func (p *Publisher) first(restriction *bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	already := *restriction
	*restriction = true
	return !already
}

// withoutWhole names the GPUs that cannot be allocated as a whole in their memory mode, so
// that nothing is published of them without partitions.
func (p *Publisher) withoutWhole() string {
	var names []string
	for _, g := range p.GPUs.List() {
		if _, ok := g.Placement(g.Name()); !ok && len(g.Placements) > 0 {
			names = append(names, g.Name()+" ("+g.MemoryMode+")")
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " Nothing is published of " + strings.Join(names, ", ") + ", which cannot be allocated as a whole in this memory mode."
}

// restrictTaints publishes no taints from now on, because the API server drops them. Free
// devices that would have a taint are not published.
func (p *Publisher) restrictTaints(ctx context.Context) {
	if !p.first(&p.noTaints) {
		return
	}
	p.Events.Warn(ctx, names.EventTaintsNotPublished, "The cluster's API server drops the taints of devices (feature gate DRADeviceTaints is off), so Tranche does not publish a device while it would have a taint, unless a claim holds it. Turn the gate on, which is the default from Kubernetes 1.36 on, and restart the plugin")
	p.Publish(ctx)
}

// restrictShares publishes no shares from now on, because the API server drops the fields
// that let several claims hold one: the first claim would get all of it.
func (p *Publisher) restrictShares(ctx context.Context) {
	if !p.first(&p.noShares) {
		return
	}
	p.Events.Warn(ctx, names.EventSharesNotPublished, "The cluster's API server drops what lets several claims hold one device (feature gate DRAConsumableCapacity is off), so Tranche publishes no shares of GPUs. Turn the gate on, which is the default from Kubernetes 1.36 on, and restart the plugin")
	p.Publish(ctx)
}

// HandleError handles an error of writing slices. It returns the errors that only a restart
// can fix.
func (p *Publisher) HandleError(ctx context.Context, err error, doing string) error {
	var dropped *resourceslice.DroppedFieldsError
	switch {
	case errors.As(err, &dropped):
		p.failed(ctx, err, doing+": the cluster lacks feature gates that Tranche needs")
		if slices.Contains(dropped.DisabledFeatures(), "DRAPartitionableDevices") {
			p.restrict(ctx)
		}
		if slices.Contains(dropped.DisabledFeatures(), "DRAConsumableCapacity") {
			p.restrictShares(ctx)
		}
		if slices.Contains(dropped.DisabledFeatures(), "DRADeviceTaints") {
			p.restrictTaints(ctx)
		}
	case apierrors.IsInvalid(err), errors.Is(err, kubeletplugin.ErrRecoverable):
		p.failed(ctx, err, doing)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
