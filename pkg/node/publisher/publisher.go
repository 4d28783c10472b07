package publisher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// failureInterval is the least time between two reports that publishing failed.
const failureInterval = 10 * time.Second

// handingOver is what is tried when the helper does not take slices.
const handingOver = "hand the slices to the publisher"

// Config is what a publisher goes by.
type Config struct {
	// Node is the name of the node, Client reaches the API server.
	Node   string
	Client kubernetes.Interface
	// GPUs are those that are published.
	GPUs    *inventory.GPUs
	Events  *telemetry.Events
	Metrics *telemetry.Metrics
	// LegacyResources is what the devices stand for, beside their classes, that Legacy
	// tells of each GPU; nil: the whole GPU.
	LegacyResources map[gpu.Vendor]string
	Legacy          func(pciAddress string) func(gpu.Placement) bool
	// Layout says what is offered of a GPU.
	Layout func(pciAddress string) profile.Layout
	// IsUpgrading tells whether a vendor's driver is being replaced, Unknown whether it
	// may not be known which GPUs the node has. Nil: neither is so.
	IsUpgrading func(gpu.Vendor) bool
	Unknown     func() bool
	// IsCut tells whether claims hold partitions of a GPU, or shares; IsShared
	// whether they hold shares.
	IsCut, IsShared func(pciAddress string) bool
	// HeldOn lists the devices of a GPU that claims hold.
	HeldOn func(pciAddress string) []string
	// IsOld tells whether claims hold devices of a GPU that were allocated from another
	// pool than the node's, as version 0.1 published it; nil: none do.
	IsOld func(pciAddress string) bool
	// Withdrawn publishes nothing at first, because Tranche is uninstalled.
	Withdrawn bool
}

// Publisher turns what is known about the GPUs into ResourceSlices.
type Publisher struct {
	Config

	// toldFailure is when a failure was last told of, in Unix nanoseconds.
	toldFailure atomic.Int64

	// mu protects what follows, and keeps publications in order.
	mu sync.Mutex
	// send hands resources to the kubeletplugin helper.
	send func(context.Context, resourceslice.DriverResources) error
	// known is set once it is known who else serves the GPUs; nothing is
	// published before.
	known  bool
	owners nodewatch.Owners
	// toldOwners is what was told of them, by vendor, as far as the node has GPUs
	// of that vendor.
	toldOwners map[gpu.Vendor]string
	// wholeOnly is set when the API server drops what keeps partitions apart.
	wholeOnly bool
	// noShares is set when the API server drops what lets several claims hold one
	// device.
	noShares bool
	// foreign lists, by GPU, the partitions that Tranche did not make.
	foreign map[string][]gpu.Partition
	// obstacles list, by GPU, what cannot be had of it now.
	obstacles map[string][]gpu.Obstacle
	// order is which devices are tainted for a switch. sent is whose order the last
	// publication carries out, nil before the first.
	order Order
	sent  *v1alpha1.PublishedTaints
	// noTaints is set when the API server drops taints. Devices that no claim holds are
	// then not published instead.
	noTaints bool
	// mine is set once no other plugin publishes the node's GPUs.
	mine bool
	// withdrawn is set while Tranche is uninstalled: nothing is published.
	withdrawn bool
	// slices is the number of slices in the last publication.
	slices int
	// places has the PCI addresses of the GPUs in the order of their slices. It only
	// grows, so that no slice changes because another GPU comes or goes.
	places []string
	// heldBack are the GPUs that the last publication withheld because of claims.
	heldBack map[string]bool
	// digests are of the devices of each GPU in the last publication, which is what the
	// API server is to have.
	digests publish.Digests
}

// New publishes nothing yet.
func New(c Config) *Publisher {
	return &Publisher{Config: c, withdrawn: c.Withdrawn}
}

// start tells where to publish to.
func (p *Publisher) start(send func(context.Context, resourceslice.DriverResources) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send = send
}

// TakeOver publishes from now on: no other plugin does.
func (p *Publisher) TakeOver(ctx context.Context) {
	p.mu.Lock()
	p.mine = true
	p.mu.Unlock()
	p.Publish(ctx)
}

// SetWithdrawn withdraws the GPUs, or publishes them again.
func (p *Publisher) SetWithdrawn(ctx context.Context, withdrawn bool) {
	p.mu.Lock()
	same := p.withdrawn == withdrawn
	p.withdrawn = withdrawn
	p.mu.Unlock()
	if !same {
		p.Publish(ctx)
	}
}

// IsWithdrawn tells whether the GPUs are withdrawn.
func (p *Publisher) IsWithdrawn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdrawn
}

// IsMine tells whether this plugin is the one that publishes.
func (p *Publisher) IsMine() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mine
}

// sliceCount is the number of ResourceSlices that the node should have.
func (p *Publisher) sliceCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slices
}

// Publish publishes the GPUs as they are now. Writing the same again costs no
// API call.
func (p *Publisher) Publish(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.send == nil || !p.known || !p.mine {
		return
	}
	if p.withdrawn {
		p.sendAll(ctx, resourceslice.DriverResources{})
		return
	}
	known := p.inPlaces()
	if len(known) == 0 && p.Unknown != nil && p.Unknown() {
		return // what an earlier run has published may be held
	}
	p.tellOwners(ctx, known)
	out := make([]publish.GPU, len(known))
	p.heldBack = map[string]bool{}
	for i := range known {
		out[i] = p.gpu(&known[i])
		if !out[i].Withheld {
			p.GPUs.MarkPublished(known[i].PCIAddress)
		}
	}
	resources, errs := publish.Resources(p.Node, out)
	for _, err := range errs {
		p.Events.Warn(ctx, v1alpha1.EventGPUNotPublished, err.Error())
	}
	p.sendAll(ctx, resources)
}

// inPlaces lists the GPUs in the order of their slices. The caller holds the lock.
func (p *Publisher) inPlaces() []inventory.GPU {
	known := p.GPUs.List()
	for i := range known {
		if !slices.Contains(p.places, known[i].PCIAddress) {
			p.places = append(p.places, known[i].PCIAddress)
		}
	}
	slices.SortStableFunc(known, func(a, b inventory.GPU) int {
		return cmp.Compare(slices.Index(p.places, a.PCIAddress), slices.Index(p.places, b.PCIAddress))
	})
	return known
}

// Adopt takes over the order of GPUs that an earlier run of the plugin has published.
func (p *Publisher) Adopt(published []resourceapi.ResourceSlice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.GPUs.List()
	for _, name := range publish.GPUs(p.Node, published) {
		i := slices.IndexFunc(known, func(c inventory.GPU) bool { return c.Name() == name })
		if i >= 0 && !slices.Contains(p.places, known[i].PCIAddress) {
			p.places = append(p.places, known[i].PCIAddress)
		}
	}
}

// holdsBack tells whether claims keep a GPU from being published. The caller holds the
// lock.
func (p *Publisher) holdsBack(pciAddress string) bool {
	// The scheduler does not count what was allocated from another pool.
	return p.IsOld != nil && p.IsOld(pciAddress) ||
		// Without counters, nothing but this keeps a whole GPU from being allocated while
		// a piece of it is still held.
		p.wholeOnly && p.IsCut(pciAddress) ||
		// Nothing keeps anything of a GPU from being allocated beside shares of it that
		// are held and not published any more.
		p.noShares && p.IsShared(pciAddress)
}

// sendAll makes resources all that the node publishes. The caller holds the lock.
func (p *Publisher) sendAll(ctx context.Context, resources resourceslice.DriverResources) {
	p.Metrics.PublishedDevices(resources)
	p.slices = len(resources.Pools[gpu.PoolName(p.Node)].Slices)
	p.digests = publish.DigestsOfResources(p.Node, resources)
	p.sent = ptr.To(p.order.By)
	if err := p.send(ctx, resources); err != nil {
		p.failed(ctx, err, handingOver)
	}
}

// gpu decides how one GPU is published. The caller holds the lock.
func (p *Publisher) gpu(c *inventory.GPU) publish.GPU {
	others := p.owners.Of(c.Vendor)
	heldBack := p.holdsBack(c.PCIAddress)
	if heldBack {
		p.heldBack[c.PCIAddress] = true
	}
	var legacy func(gpu.Placement) bool
	if p.Legacy != nil {
		legacy = p.Legacy(c.PCIAddress)
	}
	out := publish.GPU{
		GPU:            c.Offer(),
		Withheld:       (len(others) > 0 && !c.Published) || heldBack,
		WholeOnly:      p.wholeOnly,
		Taints:         p.gpuTaints(c, others),
		DeviceTaints:   p.deviceTaints(c),
		NoShares:       p.noShares,
		LegacyResource: p.LegacyResources[c.Vendor],
		Legacy:         legacy,
	}
	switch {
	case p.noTaints:
		p.withholdTainted(&out)
	case p.order.Withhold && p.order.all(c.Name()):
		p.withholdFree(&out)
	}
	return out
}

// ForeignOn lists the partitions of a GPU that are known not to be ours.
func (p *Publisher) ForeignOn(pciAddress string) []gpu.Partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreign[pciAddress]
}

// DigestOf tells what was published last of a GPU's devices.
func (p *Publisher) DigestOf(pciAddress string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.digests.Of(gpu.NameOf(pciAddress))
}

// Matches tells whether the API server has what was published last, of all GPUs, taints
// included.
func (p *Publisher) Matches(published []resourceapi.ResourceSlice) bool {
	there := publish.DigestsOf(p.Node, published)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slices == 0 {
		return there == nil
	}
	return there != nil && maps.Equal(there, p.digests)
}

// ObstaclesOn lists what is known to be in the way on a GPU.
func (p *Publisher) ObstaclesOn(pciAddress string) []gpu.Obstacle {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.obstacles[pciAddress]
}

// SetObstacles takes in what cannot be had of the GPUs now.
func (p *Publisher) SetObstacles(ctx context.Context, obstacles map[string][]gpu.Obstacle) {
	p.mu.Lock()
	same := maps.EqualFunc(p.obstacles, obstacles, slices.Equal)
	p.obstacles = obstacles
	p.mu.Unlock()
	if !same {
		p.Publish(ctx)
	}
}

// SetForeign takes in which partitions of the GPUs are not ours.
func (p *Publisher) SetForeign(ctx context.Context, foreign map[string][]gpu.Partition) {
	p.mu.Lock()
	same := maps.EqualFunc(p.foreign, foreign, slices.Equal)
	p.foreign = foreign
	p.mu.Unlock()
	if !same {
		p.Publish(ctx)
	}
}

// failed reports that the slices could not be published, where people look. The
// helper tries again many times a second at first; once in a while is enough to
// tell of it.
func (p *Publisher) failed(ctx context.Context, err error, doing string) {
	p.Metrics.PublishFailed()
	now := time.Now().UnixNano()
	if last := p.toldFailure.Load(); now-last < int64(failureInterval) || !p.toldFailure.CompareAndSwap(last, now) {
		return
	}
	p.Events.Warn(ctx, v1alpha1.EventPublishFailed, fmt.Sprintf("The GPUs of the node cannot be published: %s: %v", doing, err))
	klog.FromContext(ctx).Error(err, "Publishing failed", "doing", doing)
}

// ClaimsChanged publishes again where it depends on the claims which devices are
// published.
func (p *Publisher) ClaimsChanged(ctx context.Context) {
	p.mu.Lock()
	depends := p.noTaints || p.order.Withhold
	for _, c := range p.GPUs.List() {
		depends = depends || p.holdsBack(c.PCIAddress) != p.heldBack[c.PCIAddress]
	}
	p.mu.Unlock()
	if depends {
		p.Publish(ctx)
	}
}
