package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/follow"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/kubelet"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/share"
)

// reconcileInterval is how often ledger, hardware and API are compared.
const reconcileInterval = 5 * time.Minute

// plugin is one run of the kubelet plugin.
type plugin struct {
	*Config
	client   kubernetes.Interface
	events   *telemetry.Events
	metrics  *telemetry.Metrics
	gpus     *inventory.GPUs
	troubles *inventory.Troubles
	hardware *drivers.Set
	// serving is set once the node has GPUs, claims or a driver.
	serving      bool
	claims       *claim.Manager
	publisher    *publisher.Publisher
	registration kubelet.Registration
	node         *nodewatch.Node
	// sharing decides how the GPUs are shared, desired has their desired state by PCI address, and daemons
	// are the MPS daemons of shares.
	sharing *share.State
	desired map[string]profile.Desired
	daemons *share.Daemons
	shares  *share.Sharer
	// profile applies layouts to the GPUs, follow does what the controller asks.
	profile *partition.Node
	follow  *follow.Follower
	// looking is locked while GPUs are checked or changed. It protects seenObstacles and
	// desired.
	looking sync.Mutex
	// roster has all GPUs of the node with all of their possible devices, including GPUs
	// that do not answer.
	roster *inventory.Roster
	// labels writes the node's labels; nil: this is turned off.
	labels *nodewatch.Labeler
	// retired is set once the node is withdrawn, because Tranche is being uninstalled.
	retired bool
	// usage measures how much the GPUs are used.
	usage *telemetry.Sampler
	// seenObstacles has what the last check found, by GPU.
	seenObstacles map[string][]gpu.Obstacle
	// failures are the devices that could not be prepared. publishing is locked while they
	// are published.
	failures   inventory.Failures
	publishing sync.Mutex
	// stop ends the plugin with an error that only a restart can fix.
	stop context.CancelCauseFunc
}

// Run runs the kubelet plugin until ctx ends, or an error occurs that only a restart can fix.
func Run(ctx context.Context, c *Config, client kubernetes.Interface) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	unlock, err := kubelet.Lock(ctx, c.DataDir(), c.Installation)
	if err != nil {
		return err
	}
	defer unlock()
	if err := kubelet.RemoveStaleSockets(ctx, c.sockets()...); err != nil {
		return err
	}
	p := &plugin{Config: c, client: client, gpus: &inventory.GPUs{}, stop: stop}
	if err := p.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if !p.serving {
		p.retire(ctx)
	}
	unlock()
	if p.retired || p.neverHadGPUs() {
		return c.leave(ctx)
	}
	return nil
}

// neverHadGPUs reports whether no plugin has ever served GPUs on this node.
func (p *plugin) neverHadGPUs() bool {
	_, err := os.Stat(p.healthFile())
	return !p.serving && errors.Is(err, os.ErrNotExist)
}

func (p *plugin) run(ctx context.Context) error {
	node, err := nodewatch.Get(ctx, p.client, p.NodeName)
	if err != nil {
		return fmt.Errorf("read node %s: %w", p.NodeName, err)
	}
	p.node = nodewatch.New(p.client, node)
	p.node.Managed = p.ManagedNodes
	if p.events, err = telemetry.OpenEvents(ctx, p.client, node); err != nil {
		return err
	}
	defer p.events.Close()
	records, broken, err := ledger.Open(filepath.Join(p.DataDir(), "claims"))
	if err != nil {
		return err
	}
	p.metrics = telemetry.NewMetrics(records.List)
	stopHTTP, err := serveHTTP(ctx, p.HTTPAddress, p.metrics, p.ready, p.stop)
	if err != nil {
		return err
	}
	defer stopHTTP()
	p.openRoster(ctx)
	if err := p.findVendors(ctx); err != nil {
		return err
	}
	if len(p.node.Upgrades()) > 0 {
		// Until the upgrade is over, the plugin may not find the GPUs.
		if err := p.node.Watch(ctx, p.stop); err != nil {
			return err
		}
	}
	if err := p.waitForHardware(ctx, records); err != nil {
		return err
	}
	defer p.closeHardware(ctx)
	if err := p.node.Watch(ctx, p.stop); err != nil {
		return err
	}
	p.openShares(ctx)
	p.openProfile(ctx)
	if err := p.openGPUs(ctx, records, broken); err != nil {
		return err
	}
	if err := p.serveReport(ctx); err != nil {
		return err
	}
	p.openUsage(ctx)
	stopServing, err := p.serveKubelet(ctx)
	if err != nil {
		return err
	}
	endTurn, err := kubelet.TakeTurn(ctx, p.DataDir(), func() {
		p.claims.Ledger.ReadAgain()
		p.follow.FirstOrder(ctx)
		p.publisher.TakeOver(ctx)
		p.follow.TakeOver()
	})
	if err != nil {
		stopServing()
		return err
	}
	// In this order: the next plugin publishes after this one has stopped.
	defer func() { stopServing(); p.retire(ctx); endTurn() }()
	if err := p.publishFirst(ctx); err != nil {
		return err
	}
	return p.watchOver(ctx)
}

// openGPUs connects claims, publisher and follower to the GPUs, and checks the GPUs for the
// first time.
func (p *plugin) openGPUs(ctx context.Context, records *ledger.Ledger, broken []ledger.Broken) error {
	files, err := cdi.Open(p.CDIDir)
	if err != nil {
		return err
	}
	locks := filepath.Join(p.DataDir(), "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return fmt.Errorf("create the folder for the locks of GPUs: %w", err)
	}
	p.failures.FirstRetry = cmp.Or(p.firstRetry, firstRetry)
	p.claims = claim.NewManager(claim.Config{
		Node:     p.NodeName,
		Driver:   p.hardware.Of,
		Ledger:   records,
		CDI:      files,
		GPUs:     p.preparable,
		LoadID:   p.hardware.LoadID,
		LockDir:  locks,
		Shares:   p.shares,
		Static:   p.profile.Static,
		IsWhole:  p.isWhole,
		Running:  func(pods []ledger.Pod) ([]ledger.Pod, error) { return nodewatch.RunningPods(p.proc(), pods) },
		Observer: p.metrics,

		BeforeStep: p.beforeStep,
	})
	p.profile.Claims = p.claims
	p.hardware.Learn(records.List())
	p.publisher = p.newPublisher()
	p.follow = p.newFollower()
	if p.troubles, err = inventory.OpenTroubles(p.healthFile()); err != nil {
		klog.FromContext(ctx).Error(err, "Unhealthy GPUs may be allocated again")
	}
	p.report(ctx, p.claims.Recover(broken))
	before := p.troubles.List()
	if err := p.look(ctx); err != nil {
		return err
	}
	p.tellRecovered(ctx, before)
	p.lookForForeign(ctx)
	p.lookForObstacles(ctx)
	return nil
}

func (p *plugin) newPublisher() *publisher.Publisher {
	return publisher.New(publisher.Config{
		Node: p.NodeName, Client: p.client, GPUs: p.gpus, Events: p.events, Metrics: p.metrics,
		IsUpgrading: p.hardware.IsUpgrading, Unknown: func() bool { return p.hardware.Problem() != nil },
		LegacyResources: p.LegacyResources, MIGResources: p.LegacyMIGResources, Settings: p.sharing.Of,
		Layout: p.profile.Layout, IsPartitioned: p.isPartitioned, IsShared: p.isShared, IsOld: p.isOld, HeldOn: p.heldOn,
	})
}

func (p *plugin) newFollower() *follow.Follower {
	return follow.New(follow.Config{
		Node: p.node.First, Nodes: p.GPUNodes, Machine: p.Machine, MemoryModes: p.MemoryModes, RebootFile: p.rebootFile(),
		Claims: p.claims, GPUs: p.gpus, Roster: p.roster, Hardware: p.hardware, Profile: p.profile, Publisher: p.publisher,
		Events: p.events, Looking: &p.looking, Look: p.look, Waiting: p.sharing.Waiting,
		TaintSettle: p.taintSettle, RestorePause: p.restorePause, OrderPatience: p.orderPatience,
	})
}

// serveKubelet starts to answer the kubelet. The server outlives ctx, because stop waits for
// calls in progress.
func (p *plugin) serveKubelet(ctx context.Context) (stop func(), err error) {
	p.registration.Expect(func() { go p.publisher.Republish(ctx) })
	sent := publisher.NewHandover(p.publisher)
	metadata := cdi.MetadataFiles{Held: p.claims.Ledger.Has}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(names.DriverName),
		kubeletplugin.KubeClient(sent.Client(p.client)),
		kubeletplugin.NodeName(p.NodeName),
		kubeletplugin.NodeUID(p.node.First.UID),
		kubeletplugin.RegistrarDirectoryPath(p.registrarDir()),
		kubeletplugin.PluginDataDirectoryPath(p.DataDir()),
		// The claim.Manager locks each GPU, so that claims on different GPUs proceed in parallel.
		kubeletplugin.Serialize(false),
		kubeletplugin.GRPCInterceptor(p.registration.Interceptor),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.CDIDirectory(p.CDIDir),
		kubeletplugin.MetadataFileOps(kubeletplugin.MetadataFileOperations{
			WriteFile: metadata.WriteFile, Glob: metadata.Glob, RemoveAll: metadata.RemoveAll,
		}),
	}
	if p.PodUID != "" {
		options = append(options, kubeletplugin.RollingUpdate(p.PodUID))
	}
	driver := kubelet.New(kubelet.Config{
		Claims: p.claims, GPUs: p.gpus, Publisher: p.publisher, Metrics: p.metrics,
		Daemons: p.daemons, Status: telemetry.NewClaimStatus(p.client),
		Nudge: p.follow.Nudge, Trouble: p.follow, Failures: p, Stop: p.stop,
	})
	helper, err := kubeletplugin.Start(context.WithoutCancel(ctx), driver, options...)
	if err != nil {
		return nil, fmt.Errorf("start serving the kubelet: %w", err)
	}
	sent.Begin(p.publisher, helper.PublishResources)
	return func() {
		sent.Stop()
		driver.WaitForCalls(ctx)
		helper.Stop()
	}, nil
}

// publishFirst publishes for the first time, after it has read what an earlier run published
// and which other systems serve the GPUs.
func (p *plugin) publishFirst(ctx context.Context) error {
	published, err := p.publisher.Stored(ctx)
	if err != nil {
		return err
	}
	p.gpus.Adopt(p.NodeName, published)
	p.publisher.Adopt(ctx, published)
	if err := p.publisher.RemoveOtherPools(ctx, published); err != nil {
		return err
	}
	if err := p.publisher.DetectFeatures(ctx); err != nil {
		return err
	}
	if p.IgnoreOtherOwners && p.ManagedNodes == nil {
		p.publisher.SetOwners(ctx, nil)
		return nil
	}
	err = nodewatch.WatchOwners(ctx, p.client, p.node, p.proc(), p.idleInterval(), func(all nodewatch.Owners) {
		if p.IgnoreOtherOwners {
			all = all.Unmanaged()
		}
		p.publisher.SetOwners(ctx, all)
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("find out whether another system serves the GPUs of the node: %w", err)
	}
	return nil
}

// watchOver checks hardware and ledger until ctx ends.
func (p *plugin) watchOver(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.watchVendors(ctx) })
	wg.Go(func() { wait.UntilWithContext(ctx, p.hardware.Resume, p.idleInterval()) })
	wg.Go(func() { p.watchGPUs(ctx) })
	wg.Go(func() { p.retryFailed(ctx) })
	wg.Go(func() { p.follow.Run(ctx) })
	wg.Go(func() { wait.UntilWithContext(ctx, p.reconcile, reconcileInterval) })
	if p.UsageInterval > 0 {
		wg.Go(func() { p.usage.Run(ctx) })
	}
	if p.labels != nil {
		wg.Go(func() { p.watchLabels(ctx) })
	}
	wg.Wait()
	return context.Cause(ctx)
}
