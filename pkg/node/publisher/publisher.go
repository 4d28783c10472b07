package publisher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/share"
)

// failureInterval is the minimum time between two events about failed publications.
const failureInterval = 10 * time.Second

// handingOver says in messages what was tried.
const handingOver = "hand the slices to the publisher"

// Config has what a Publisher works with.
type Config struct {
	// Node is the name of the node, Client reaches the API server.
	Node   string
	Client kubernetes.Interface
	// GPUs are the GPUs to publish.
	GPUs    *inventory.GPUs
	Drivers *inventory.Drivers
	// Ledger has what claims hold.
	Ledger *ledger.Ledger
	// Applied says which devices the applied profile offers.
	Applied *partition.State
	// Sharing has the settings of the GPUs, which say what ExtendedResources mean; nil: the default
	// ones.
	Sharing *share.State
	Events  *telemetry.Events
	Metrics *telemetry.Metrics
	// ExtendedResources has the extended resource ("nvidia.com/gpu") by vendor. MIGResources:
	// devices also stand for nvidia.com/mig-<profile>.
	ExtendedResources map[gpu.Vendor]string
	MIGResources      bool
}

// Publisher publishes the GPUs of the node as ResourceSlices.
type Publisher struct {
	Config

	// failureReported is when the last failure was reported, in Unix nanoseconds.
	failureReported atomic.Int64

	// mu protects the fields below, and keeps publications in order.
	mu sync.Mutex
	// send passes the slices of the node's pool to the kubeletplugin helper.
	send func(context.Context, []publish.Slice) error
	// owners are the other systems that serve the GPUs. Nothing is published until known is
	// set.
	known  bool
	owners inventory.Owners
	// reportedOwners has the owners that were reported, by vendor, for the vendors whose GPUs
	// the node has.
	reportedOwners map[gpu.Vendor]string
	// wholeOnly is set when the API server drops counters (DRAPartitionableDevices).
	wholeOnly bool
	// noShares is set when the API server drops devices that several claims can hold
	// (DRAConsumableCapacity).
	noShares bool
	// foreign lists, by GPU, the partitions that Tranche did not create.
	foreign map[string][]gpu.Partition
	// obstacles lists, by GPU, what cannot be allocated now by what the hardware says,
	// failures by what could not be prepared.
	obstacles, failures map[string][]gpu.Obstacle
	// switchTaints says which devices are tainted for a switch. sent identifies the switch whose taints the
	// last publication has, nil before the first.
	switchTaints SwitchTaints
	sent         *v1beta1.PublishedTaints
	// reservation says which devices are tainted for a defragmentation.
	reservation Reservation
	// noTaints is set when the API server drops device taints (DRADeviceTaints). Then free
	// devices that would have a taint are not published.
	noTaints bool
	// mine is set once no other plugin publishes the node's GPUs.
	mine bool
	// slices is the number of slices in the last publication.
	slices int
	// places has the PCI addresses of the GPUs in the order of their slices. It only
	// grows, so that no slice changes because another GPU comes or goes.
	places []string
	// heldBack are the GPUs that the last publication withheld because of claims.
	heldBack map[string]bool
	// unavailable has, by GPU, why no device of it can be allocated by the last publication.
	unavailable map[string][]string
	// digests has the digest of each GPU's devices in the last publication.
	digests publish.Digests
}

// New returns a Publisher that publishes nothing before TakeOver.
func New(c Config) *Publisher {
	return &Publisher{Config: c}
}

// start sets where to publish to.
func (p *Publisher) start(send func(context.Context, []publish.Slice) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send = send
}

// TakeOver makes this plugin publish. No other plugin may do so then.
func (p *Publisher) TakeOver(ctx context.Context) {
	p.mu.Lock()
	p.mine = true
	p.mu.Unlock()
	p.Publish(ctx)
}

// set changes an input of the publication, and publishes again if it differs.
func set[T any](ctx context.Context, p *Publisher, input *T, value T) {
	p.mu.Lock()
	same := reflect.DeepEqual(*input, value)
	*input = value
	p.mu.Unlock()
	if !same {
		p.Publish(ctx)
	}
}

// SetObstacles sets what cannot be allocated now, by GPU.
func (p *Publisher) SetObstacles(ctx context.Context, obstacles map[string][]gpu.Obstacle) {
	set(ctx, p, &p.obstacles, obstacles)
}

// SetFailures sets which devices could not be prepared, by GPU.
func (p *Publisher) SetFailures(ctx context.Context, failures map[string][]gpu.Obstacle) {
	set(ctx, p, &p.failures, failures)
}

// SetForeign sets the partitions that Tranche did not create, by GPU.
func (p *Publisher) SetForeign(ctx context.Context, foreign map[string][]gpu.Partition) {
	set(ctx, p, &p.foreign, foreign)
}

// SetSwitchTaints sets which devices are tainted for a switch.
func (p *Publisher) SetSwitchTaints(ctx context.Context, t SwitchTaints) {
	set(ctx, p, &p.switchTaints, t)
}

// SetReservation sets which devices are tainted for a defragmentation.
func (p *Publisher) SetReservation(ctx context.Context, r Reservation) {
	set(ctx, p, &p.reservation, r)
}

// IsMine reports whether this plugin publishes the GPUs.
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

// Publish publishes the GPUs as they are now. If nothing has changed, that costs no API call.
func (p *Publisher) Publish(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.send == nil || !p.known || !p.mine {
		return
	}
	known := p.inPlaces()
	if len(known) == 0 && p.Drivers.Problem() != nil {
		return // claims may hold what an earlier run has published
	}
	p.reportOwners(ctx, known)
	p.unavailable = map[string][]string{}
	if p.unmanaged() {
		for i := range known {
			p.unavailable[known[i].PCIAddress] = []string{telemetry.Withheld}
		}
		p.Metrics.OfferedGPUs(nil)
		p.sendAll(ctx, nil)
		return
	}
	out := make([]publish.GPU, len(known))
	p.heldBack = map[string]bool{}
	for i := range known {
		out[i] = p.gpu(&known[i])
		// A monitor watches all GPUs of the node or waits, and many tolerate every taint.
		out[i].NoMonitor = p.noTaints || len(p.switchTaints.GPUs) > 0 || p.Drivers.IsUpgrading(known[i].Vendor)
		if !out[i].Withheld {
			p.GPUs.MarkPublished(known[i].PCIAddress)
		}
	}
	p.Metrics.OfferedGPUs(offered(out))
	all, errs := publish.Slices(out)
	for _, err := range errs {
		p.Events.Warn(ctx, names.EventGPUNotPublished, err.Error())
	}
	p.sendAll(ctx, all)
}

// inPlaces lists the GPUs in the order of their slices. The caller holds the lock.
func (p *Publisher) inPlaces() []inventory.GPU {
	known := p.GPUs.List()
	p.places = lists.Union(p.places, lists.Map(known, func(g inventory.GPU) string { return g.PCIAddress })...)
	slices.SortStableFunc(known, func(a, b inventory.GPU) int {
		return cmp.Compare(slices.Index(p.places, a.PCIAddress), slices.Index(p.places, b.PCIAddress))
	})
	return known
}

// Adopt continues what an earlier run of the plugin has published: the order of the GPUs, and the events
// about what their taints show.
func (p *Publisher) Adopt(ctx context.Context, published []resourceapi.ResourceSlice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.GPUs.List()
	for _, name := range publish.GPUs(p.Node, published) {
		i := slices.IndexFunc(known, func(g inventory.GPU) bool { return g.Name() == name })
		if i >= 0 && !slices.Contains(p.places, known[i].PCIAddress) {
			p.places = append(p.places, known[i].PCIAddress)
		}
	}
	p.reportEnded(ctx, known, published)
}

// sendAll publishes slices instead of the previous ones. The caller holds the lock.
func (p *Publisher) sendAll(ctx context.Context, all []publish.Slice) {
	p.Metrics.PublishedDevices(all)
	p.slices = len(all)
	p.digests = publish.DigestsOfSlices(all)
	p.sent = ptr.To(p.switchTaints.By)
	if err := p.send(ctx, all); err != nil {
		p.failed(ctx, err, handingOver)
	}
}

// gpu decides how one GPU is published. The caller holds the lock.
func (p *Publisher) gpu(g *inventory.GPU) publish.GPU {
	others := p.owners.Of(g.Vendor, g.PCIAddress)
	heldBack := p.holdsBack(g.PCIAddress)
	if heldBack {
		p.heldBack[g.PCIAddress] = true
	}
	settings := p.Sharing.Of(g.PCIAddress)
	out := publish.GPU{
		GPU:              g.Offer(),
		Withheld:         (len(others) > 0 && !g.Published) || heldBack,
		WholeOnly:        p.wholeOnly,
		Taints:           p.gpuTaints(g, others),
		DeviceTaints:     p.deviceTaints(g),
		NoShares:         p.noShares,
		ExtendedResource: p.ExtendedResources[g.Vendor],
		Means:            settings.Means,
	}
	if p.MIGResources {
		out.MIGResource = settings.MIGResource
	}
	p.unavailable[g.PCIAddress] = unavailable(&out)
	switch {
	case p.noTaints:
		p.withholdTainted(&out)
	case p.switchTaints.Withhold && p.switchTaints.all(g.Name()):
		p.withholdFree(&out)
	}
	return out
}

// ForeignOn lists the known partitions of a GPU that Tranche did not create.
func (p *Publisher) ForeignOn(pciAddress string) []gpu.Partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreign[pciAddress]
}

// DigestOf returns the digest of a GPU's devices in the last publication.
func (p *Publisher) DigestOf(pciAddress string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.digests.Of(gpu.NameOf(pciAddress))
}

// UnavailableBecause returns why no device of a GPU can be allocated by the last publication, empty if
// some can: taints without their domain, and telemetry.Withheld.
func (p *Publisher) UnavailableBecause(pciAddress string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unavailable[pciAddress]
}

// Matches reports whether ResourceSlices are those of the last publication, including taints.
func (p *Publisher) Matches(published []resourceapi.ResourceSlice) bool {
	there := publish.DigestsOf(p.Node, published)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slices == 0 {
		return there == nil
	}
	return there != nil && maps.Equal(there, p.digests)
}

// ObstaclesOn lists what cannot be allocated of a GPU now.
func (p *Publisher) ObstaclesOn(pciAddress string) []gpu.Obstacle {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.obstacles[pciAddress]
}

// FailuresOn lists the devices of a GPU that could not be prepared.
func (p *Publisher) FailuresOn(pciAddress string) []gpu.Obstacle {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures[pciAddress]
}

// IsFree reports whether claims could be given a device but for obstacles and failures.
func (p *Publisher) IsFree(g *inventory.GPU, device string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	others := p.owners.Of(g.Vendor, g.PCIAddress)
	return p.mine && p.known && !p.unmanaged() && len(p.gpuTaints(g, others)) == 0 && len(p.ownTaints(g)[device]) == 0
}

// failed reports that the slices could not be published. The helper retries many times a
// second at first, so not every failure is reported.
func (p *Publisher) failed(ctx context.Context, err error, doing string) {
	p.Metrics.PublishFailed()
	now := time.Now().UnixNano()
	if last := p.failureReported.Load(); now-last < int64(failureInterval) || !p.failureReported.CompareAndSwap(last, now) {
		return
	}
	p.Events.Warn(ctx, names.EventPublishFailed, fmt.Sprintf("Cannot publish the GPUs of the node: %s: %v", doing, err))
	klog.FromContext(ctx).Error(err, "Publishing failed", "doing", doing)
}

// ClaimsChanged publishes again if the published devices depend on the claims.
func (p *Publisher) ClaimsChanged(ctx context.Context) {
	p.mu.Lock()
	depends := p.noTaints || p.switchTaints.Withhold
	for _, g := range p.GPUs.List() {
		depends = depends || p.holdsBack(g.PCIAddress) != p.heldBack[g.PCIAddress]
	}
	depends = depends || len(p.owners.Unmanaged()) > 0 && p.unmanaged() != (p.slices == 0)
	p.mu.Unlock()
	if depends {
		p.Publish(ctx)
	}
}
