package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// The taints that the plugin puts on devices.
const (
	// TaintOwner is on the devices of a card that another system serves.
	TaintOwner = "gpu.tranche.dev/other-owner"
	// TaintUnhealthy is on the devices of a card that does not answer.
	TaintUnhealthy = "gpu.tranche.dev/unhealthy"
	// TaintForeign is on the devices of which a partition that Tranche did not
	// make holds a part.
	TaintForeign = "gpu.tranche.dev/foreign-partition"
)

// failureInterval is the least time between two reports that publishing failed.
const failureInterval = 10 * time.Second

// publisher turns what is known about the cards into ResourceSlices.
type publisher struct {
	node    string
	cards   *cards
	events  *eventSink
	metrics *metrics
	// legacyResource is what a whole card stands for beside its classes.
	legacyResource string
	// isCut tells whether claims hold partitions of a card.
	isCut func(pciAddress string) bool

	// toldFailure is when a failure was last told of, in Unix nanoseconds.
	toldFailure atomic.Int64

	// mu protects what follows, and keeps publications in order.
	mu sync.Mutex
	// send hands resources to the kubeletplugin helper.
	send func(context.Context, resourceslice.DriverResources) error
	// known is set once it is known who else serves the cards; nothing is
	// published before.
	known  bool
	owners []owner
	// wholeOnly is set when the API server drops what keeps partitions apart.
	wholeOnly bool
	// foreign lists, by card, the partitions that Tranche did not make.
	foreign map[string][]gpu.Partition
	// mine is set once no other plugin publishes the node's cards.
	mine bool
	// withdrawn is set while Tranche is uninstalled: nothing is published.
	withdrawn bool
	// slices is the number of slices in the last publication.
	slices int
}

// start tells where to publish to.
func (p *publisher) start(send func(context.Context, resourceslice.DriverResources) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send = send
}

// takeOver publishes from now on: no other plugin does.
func (p *publisher) takeOver(ctx context.Context) {
	p.mu.Lock()
	p.mine = true
	p.mu.Unlock()
	p.publish(ctx)
}

// setWithdrawn withdraws the cards, or publishes them again.
func (p *publisher) setWithdrawn(ctx context.Context, withdrawn bool) {
	p.mu.Lock()
	same := p.withdrawn == withdrawn
	p.withdrawn = withdrawn
	p.mu.Unlock()
	if !same {
		p.publish(ctx)
	}
}

func (p *publisher) isWithdrawn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdrawn
}

// isMine tells whether this plugin is the one that publishes.
func (p *publisher) isMine() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mine
}

// sliceCount is the number of ResourceSlices that the node should have.
func (p *publisher) sliceCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slices
}

// publish publishes the cards as they are now. Writing the same again costs no
// API call.
func (p *publisher) publish(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.send == nil || !p.known || !p.mine {
		return
	}
	if p.withdrawn {
		p.sendAll(ctx, resourceslice.DriverResources{})
		return
	}
	known := p.cards.list()
	out := make([]publish.Card, len(known))
	for i := range known {
		out[i] = p.card(&known[i])
		if !out[i].Withheld {
			p.cards.markPublished(known[i].PCIAddress)
		}
	}
	resources, errs := publish.Resources(p.node, out)
	for _, err := range errs {
		p.events.warn(ctx, "CardNotPublished", err.Error())
	}
	p.sendAll(ctx, resources)
}

// sendAll makes resources all that the node publishes. The caller holds the lock.
func (p *publisher) sendAll(ctx context.Context, resources resourceslice.DriverResources) {
	p.metrics.publishedDevices(resources)
	p.slices = 0
	for _, pool := range resources.Pools {
		p.slices += len(pool.Slices)
	}
	if err := p.send(ctx, resources); err != nil {
		p.failed(ctx, err, "hand the slices to the publisher")
	}
}

// card decides how one card is published. The caller holds the lock.
func (p *publisher) card(c *card) publish.Card {
	return publish.Card{
		GPU: c.GPU,
		// Without counters, nothing but this keeps a whole card from being given
		// out while a piece of it is still held.
		Withheld:       (len(p.owners) > 0 && !c.published) || (p.wholeOnly && p.isCut(c.PCIAddress)),
		WholeOnly:      p.wholeOnly,
		Taints:         taintsOf(c, p.owners),
		DeviceTaints:   foreignTaints(&c.GPU, p.foreign[c.PCIAddress]),
		LegacyResource: p.legacyResource,
	}
}

// foreignTaints keeps the scheduler from choosing what somebody else's
// partitions cover.
func foreignTaints(card *gpu.GPU, foreign []gpu.Partition) map[string][]resourceapi.DeviceTaint {
	taints := map[string][]resourceapi.DeviceTaint{}
	for _, p := range card.Placements {
		for _, f := range foreign {
			if f.Overlaps(p) {
				taints[p.Name()] = []resourceapi.DeviceTaint{{Key: TaintForeign, Value: f.Label(), Effect: resourceapi.DeviceTaintEffectNoSchedule}}
				break
			}
		}
	}
	return taints
}

// setForeign takes in which partitions of a card are not ours.
func (p *publisher) setForeign(ctx context.Context, foreign map[string][]gpu.Partition) {
	p.mu.Lock()
	same := maps.EqualFunc(p.foreign, foreign, slices.Equal)
	p.foreign = foreign
	p.mu.Unlock()
	if !same {
		p.publish(ctx)
	}
}

// restrict publishes whole cards only from now on, because the API server drops
// what keeps partitions apart.
func (p *publisher) restrict(ctx context.Context) {
	p.mu.Lock()
	already := p.wholeOnly
	p.wholeOnly = true
	p.mu.Unlock()
	if already {
		return
	}
	p.events.warn(ctx, "PartitionsNotPublished", "The cluster's API server drops the counters that keep partitions apart (feature gate DRAPartitionableDevices is off), so Tranche publishes whole GPUs only. Turn the gate on, which is the default from Kubernetes 1.36 on, and restart the plugin")
	p.publish(ctx)
}

// failed reports that the slices could not be published, where people look. The
// helper tries again many times a second at first; once in a while is enough to
// tell of it.
func (p *publisher) failed(ctx context.Context, err error, doing string) {
	p.metrics.publishErrors.Inc()
	now := time.Now().UnixNano()
	if last := p.toldFailure.Load(); now-last < int64(failureInterval) || !p.toldFailure.CompareAndSwap(last, now) {
		return
	}
	p.events.warn(ctx, "PublishFailed", fmt.Sprintf("The GPUs of the node cannot be published: %s: %v", doing, err))
	klog.FromContext(ctx).Error(err, "Publishing failed", "doing", doing)
}

// setOwners takes in which other systems serve the cards.
func (p *publisher) setOwners(ctx context.Context, owners []owner) {
	p.mu.Lock()
	before, first := p.owners, !p.known
	p.owners, p.known = owners, true
	p.mu.Unlock()
	if !first && ownerNames(before) == ownerNames(owners) {
		return
	}
	for _, o := range owners {
		p.events.warn(ctx, "OtherOwner", fmt.Sprintf("Tranche does not give out the NVIDIA GPUs of this node, because %s. To let Tranche have them, %s; to publish them all the same, set ignoreOtherOwners=true in the chart", o.found, o.remedy))
	}
	if len(owners) == 0 && len(before) > 0 {
		p.events.note(ctx, "OtherOwnerGone", "No other system serves the GPUs of this node any more; Tranche publishes them")
	}
	p.publish(ctx)
}

func ownerNames(owners []owner) string {
	names := make([]string, len(owners))
	for i, o := range owners {
		names[i] = o.name
	}
	return strings.Join(names, "_")
}

// taintsOf says why nothing new may be put on a card.
func taintsOf(c *card, owners []owner) []resourceapi.DeviceTaint {
	var taints []resourceapi.DeviceTaint
	if len(owners) > 0 {
		taints = append(taints, resourceapi.DeviceTaint{Key: TaintOwner, Value: ownerNames(owners), Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	if c.problem != "" {
		taints = append(taints, resourceapi.DeviceTaint{Key: TaintUnhealthy, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	return taints
}

// adopt remembers which cards an earlier run of the plugin has published.
func (c *cards) adopt(node string, published []resourceapi.ResourceSlice) {
	withDevices := map[string]bool{}
	for _, s := range published {
		if len(s.Spec.Devices) > 0 {
			withDevices[s.Spec.Pool.Name] = true
		}
	}
	for _, known := range c.list() {
		if withDevices[gpu.PoolName(node, known.Name())] {
			c.markPublished(known.PCIAddress)
		}
	}
}
