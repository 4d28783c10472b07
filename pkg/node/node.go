package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/node/follow"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/kubelet"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
)

// defaultReconcileInterval is how often ledger, hardware and API are compared.
const defaultReconcileInterval = 5 * time.Minute

// plugin is one run of the kubelet plugin on a node with GPUs.
type plugin struct {
	*base
	// claims prepares and releases claims, monitor checks the GPUs and publishes them, and follow
	// does what the controller asks, for which profile changes the GPUs.
	claims  *claims
	monitor *monitor
	profile *partition.Node
	follow  *follow.Follower
	// usage measures how much the GPUs are used, labels writes the node's labels.
	usage  *telemetry.Sampler
	labels *inventory.Labeler
}

type outcome int

const (
	// idle: the node has no GPUs.
	idle outcome = iota
	// served: the plugin has served the kubelet.
	served
	// withdrawn: Tranche is being uninstalled, and the node is withdrawn.
	withdrawn
)

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
	end, err := run(ctx, c, client, stop)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	// No plugin has ever served GPUs on this node if there is no file of their health.
	_, noFile := os.Stat(c.healthFile())
	leaves := end == withdrawn || end == idle && errors.Is(noFile, os.ErrNotExist)
	if end == idle && c.retire(ctx, client, nil) {
		leaves = true
	}
	unlock()
	if leaves {
		return c.leave(ctx)
	}
	return nil
}

func run(ctx context.Context, c *Config, client kubernetes.Interface, stop context.CancelCauseFunc) (end outcome, err error) {
	b, closeBase, err := openBase(ctx, c, client, stop)
	if err != nil {
		return idle, err
	}
	defer closeBase()
	if err := b.waitForHardware(ctx); err != nil {
		return idle, err
	}
	defer b.closeDrivers(ctx)
	p, err := newPlugin(ctx, b)
	if err != nil {
		return served, err
	}
	if err := errors.Join(p.serveReport(ctx), p.serveHook(ctx)); err != nil {
		return served, err
	}
	stopServing, err := p.serveKubelet(ctx)
	if err != nil {
		return served, err
	}
	stepDown, err := kubelet.Lead(ctx, p.DataDir(), func() {
		p.records.ReadAgain()
		p.follow.FirstTaints(ctx)
		p.monitor.publisher.TakeOver(ctx)
		p.follow.TakeOver()
	})
	if err != nil {
		stopServing()
		return served, err
	}
	// In this order: the next plugin publishes after this one has stopped.
	defer func() {
		stopServing()
		if p.retire(ctx, p.client, p) {
			end = withdrawn
		}
		stepDown()
	}()
	if err := p.publishFirst(ctx); err != nil {
		return served, err
	}
	return served, p.watchOver(ctx)
}

// newPlugin connects the parts of the plugin, and checks the GPUs for the first time.
func newPlugin(ctx context.Context, b *base) (*plugin, error) {
	if err := b.node.Watch(ctx, b.stop); err != nil {
		return nil, err
	}
	claims, err := newClaims(ctx, b)
	if err != nil {
		return nil, err
	}
	p := &plugin{base: b, claims: claims, monitor: newMonitor(ctx, b, claims), usage: newSampler(ctx, claims)}
	p.profile = partition.New(partition.Config{
		State: b.applied, GPUs: b.roster.All, Lost: b.roster.Lost, Driver: b.drivers.Of, Claims: claims, MemoryModes: b.MemoryModes,
	})
	p.follow = follow.New(follow.Config{
		Node: b.node.First, Nodes: b.GPUNodes, Machine: b.Machine, Version: b.Version, NoKernelLimits: claims.limiter.WhyNot, MemoryModes: b.MemoryModes, RebootFile: b.rebootFile(),
		Claims: claims.Manager, GPUs: b.gpus, Roster: b.roster, Drivers: b.drivers, Profile: p.profile,
		Publisher: p.monitor.publisher, Sharing: p.monitor.sharing, Monitor: p.monitor, Events: b.events,
		TaintSettle: b.taintSettle, RestorePause: b.restorePause, TaintsPatience: b.taintsPatience,
	})
	if b.NodeLabels {
		p.labels = inventory.NewLabeler(b.client, b.node)
	}
	b.metrics.Register(p.usage)
	b.metrics.Register(telemetry.HealthCollector(p.gpuHealth))
	b.drivers.Learn(b.records.List())
	claims.report(ctx, claims.Recover(b.broken))
	return p, p.monitor.checkFirst(ctx)
}

// serveKubelet starts to answer the kubelet. The server outlives ctx, because stop waits for
// calls in progress.
func (p *plugin) serveKubelet(ctx context.Context) (stop func(), err error) {
	slices := p.monitor.publisher
	p.registration.Expect(func() { go slices.Republish(ctx) })
	handover := publisher.NewHandover(slices)
	metadata := cdi.MetadataFiles{Held: p.records.Has}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(names.DriverName),
		kubeletplugin.KubeClient(handover.Client(p.client)),
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
		Claims: p.claims.Manager, GPUs: p.gpus, Publisher: slices, Metrics: p.metrics, Daemons: p.claims.daemons, Limiter: p.claims.limiter,
		Status: telemetry.NewClaimStatus(p.client), Follower: p.follow, Failures: p.monitor, Stop: p.stop,
	})
	helper, err := kubeletplugin.Start(context.WithoutCancel(ctx), driver, options...)
	if err != nil {
		return nil, fmt.Errorf("start serving the kubelet: %w", err)
	}
	handover.Begin(slices, helper.PublishResources)
	return func() {
		handover.Stop()
		driver.WaitForCalls(ctx)
		helper.Stop()
	}, nil
}

// publishFirst publishes for the first time, after it has read what an earlier run published
// and which other systems serve the GPUs.
func (p *plugin) publishFirst(ctx context.Context) error {
	slices := p.monitor.publisher
	published, err := slices.Stored(ctx)
	if err != nil {
		return err
	}
	p.gpus.Adopt(p.NodeName, published)
	slices.Adopt(ctx, published)
	if err := slices.DetectFeatures(ctx); err != nil {
		return err
	}
	if p.IgnoreOtherSystems && p.ManagedNodes == nil {
		slices.SetOwners(ctx, nil)
		return nil
	}
	err = inventory.WatchOwners(ctx, p.client, p.node, p.proc(), p.idleInterval(), func(all inventory.Owners) {
		if p.IgnoreOtherSystems {
			all = all.Unmanaged()
		}
		slices.SetOwners(ctx, all)
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
	every := func(interval time.Duration, do func(context.Context)) {
		wg.Go(func() { wait.UntilWithContext(ctx, do, interval) })
	}
	wg.Go(func() { p.watchVendors(ctx) })
	wg.Go(func() { p.follow.Run(ctx) })
	every(p.idleInterval(), p.drivers.Resume)
	wg.Go(func() { p.watchGPUs(ctx) })
	every(p.lookInterval(), p.monitor.retryFailed)
	every(cmp.Or(p.reconcileInterval, defaultReconcileInterval), p.claims.reconcile)
	if p.UsageInterval > 0 {
		wg.Go(func() { p.usage.Run(ctx) })
	}
	if p.labels != nil {
		every(p.lookInterval(), p.writeLabels)
	}
	if p.GPUResources {
		every(p.lookInterval(), p.writeResources)
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (p *plugin) watchGPUs(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, p.lookInterval(), false, func(ctx context.Context) (bool, error) {
		p.monitor.check(ctx)
		p.follow.Nudge()
		return false, nil
	})
}
