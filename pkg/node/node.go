package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	// defaultLookInterval is how often the cards are looked at.
	defaultLookInterval = 5 * time.Second
	// lookTimeout is how long one look may take.
	lookTimeout = 30 * time.Second
	// idleInterval is how often a node without a driver is looked at again.
	idleInterval = 15 * time.Second
	// reconcileInterval is how often ledger, hardware and API are compared.
	reconcileInterval = 5 * time.Minute
	// republishPatience is how long the plugin makes sure, after the kubelet
	// has registered it, that its slices are there.
	republishPatience = 20 * time.Second
)

// Config is what the plugin is started with.
type Config struct {
	NodeName string
	// KubeletDir is the kubelet's folder, by the same path here and on the host.
	KubeletDir string
	CDIDir     string
	// HostRoot is where the host's root folder is mounted.
	HostRoot string
	// NVIDIADriverRoot is the driver's folder on the host, empty to search.
	NVIDIADriverRoot string
	// CDIHook is the program that CDI hooks run.
	CDIHook     string
	HTTPAddress string
	// IgnoreOtherOwners publishes cards that another system serves, too.
	IgnoreOtherOwners bool
	// Simulate names the inventory to simulate, SimulateNodes that of single
	// nodes. SimulateDir holds inventories of the user's own, SimulateRoot the
	// simulated machine's files, by the same path here and on the host.
	Simulate      string
	SimulateNodes map[string]string
	SimulateDir   string
	SimulateRoot  string
	// LookInterval is how often the cards are looked at; zero: every 5 s.
	LookInterval time.Duration
}

func (c *Config) dataDir() string { return filepath.Join(c.KubeletDir, "plugins", gpu.DriverName) }

// plugin is one run of the kubelet plugin.
type plugin struct {
	*Config
	client       kubernetes.Interface
	events       *eventSink
	metrics      *metrics
	cards        *cards
	hardware     *hardware
	claims       *claim.Manager
	publisher    *publisher
	registration registration
	// stop ends the run, for errors that only a restart can mend.
	stop context.CancelCauseFunc
}

// Run runs the kubelet plugin until ctx ends, or until something fails that
// only a restart can mend.
func Run(ctx context.Context, c *Config, client kubernetes.Interface) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	unlock, err := lockFolder(c.dataDir())
	if err != nil {
		return err
	}
	defer unlock()
	p := &plugin{Config: c, client: client, cards: &cards{}, stop: stop}
	if err := p.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (p *plugin) run(ctx context.Context) error {
	if err := p.openEvents(ctx); err != nil {
		return err
	}
	defer p.events.close()
	records, broken, err := ledger.Open(filepath.Join(p.dataDir(), "claims"))
	if err != nil {
		return err
	}
	p.metrics = newMetrics(records.List)
	if err := serveHTTP(ctx, p.HTTPAddress, p.metrics, p.registration.ready, p.stop); err != nil {
		return err
	}
	if err := p.waitForHardware(ctx); err != nil {
		return err
	}
	defer p.closeHardware(ctx)
	if err := p.openClaims(ctx, records, broken); err != nil {
		return err
	}
	helper, err := p.serveKubelet(ctx)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := p.publishFirst(ctx); err != nil {
		return err
	}
	p.watchOver(ctx)
	return context.Cause(ctx)
}

// waitForHardware returns when the node has cards and a driver for them. Most
// nodes of a cluster have none; there the plugin idles.
func (p *plugin) waitForHardware(ctx context.Context) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, idleInterval, true, func(ctx context.Context) (bool, error) {
		hardware, err := openHardware(ctx, p.Config)
		if errors.Is(err, errNoHardware) {
			if err.Error() != said {
				said = err.Error()
				klog.FromContext(ctx).Info("Nothing to publish, looking again from time to time", "reason", said, "every", idleInterval)
			}
			return false, nil
		}
		if err != nil {
			p.events.lastWords(ctx, "HardwareUnusable", fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
			return false, err
		}
		p.hardware = hardware
		if _, err = hardware.look(ctx, p.cards); err != nil {
			p.events.lastWords(ctx, "HardwareUnusable", fmt.Sprintf("Tranche cannot list the GPUs of this node: %v", err))
		}
		return err == nil, err
	})
}

func (p *plugin) closeHardware(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.hardware.Close(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Closing the hardware failed")
	}
}

func (p *plugin) openClaims(ctx context.Context, records *ledger.Ledger, broken []ledger.Broken) error {
	files, err := cdi.Open(p.CDIDir)
	if err != nil {
		return err
	}
	p.claims = claim.NewManager(claim.Config{
		Node:     p.NodeName,
		Hardware: p.hardware,
		Ledger:   records,
		CDI:      files,
		Cards:    p.cards.gpus,
		BootID:   p.hardware.bootID,
		Observer: p.metrics,
	})
	p.report(ctx, p.claims.Recover(broken))
	return nil
}

// serveKubelet starts to answer the kubelet.
func (p *plugin) serveKubelet(ctx context.Context) (*kubeletplugin.Helper, error) {
	p.publisher = &publisher{node: p.NodeName, cards: p.cards, events: p.events, metrics: p.metrics}
	p.registration.expect(func() { go p.republish(ctx) })
	helper, err := kubeletplugin.Start(ctx,
		&driver{claims: p.claims, cards: p.cards, publisher: p.publisher, metrics: p.metrics, stop: p.stop},
		kubeletplugin.DriverName(gpu.DriverName),
		kubeletplugin.KubeClient(p.client),
		kubeletplugin.NodeName(p.NodeName),
		kubeletplugin.NodeUID(p.events.node.UID),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(p.KubeletDir, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(p.dataDir()),
		// Our own locks let claims on different cards proceed at the same time.
		kubeletplugin.Serialize(false),
		kubeletplugin.GRPCInterceptor(p.registration.interceptor),
	)
	if err != nil {
		return nil, fmt.Errorf("start serving the kubelet: %w", err)
	}
	p.publisher.start(helper.PublishResources)
	return helper, nil
}

// publishFirst publishes for the first time in this run, once it is known what
// an earlier run published and who else serves the cards.
func (p *plugin) publishFirst(ctx context.Context) error {
	published, err := p.ownSlices(ctx)
	if err != nil {
		return err
	}
	p.cards.adopt(p.NodeName, published)
	if p.IgnoreOtherOwners {
		p.publisher.setOwners(ctx, nil)
		return nil
	}
	err = watchOwners(ctx, p.client, p.NodeName, func(owners []owner) { p.publisher.setOwners(ctx, owners) })
	if err != nil {
		return fmt.Errorf("find out whether another system serves the GPUs of the node: %w", err)
	}
	return nil
}

func (p *plugin) ownSlices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	list, err := p.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: p.NodeName,
		resourceapi.ResourceSliceSelectorDriver:   gpu.DriverName,
	}.String()})
	if err != nil {
		return nil, fmt.Errorf("list the ResourceSlices of the node: %w", err)
	}
	return list.Items, nil
}

// republish publishes again until the API server has all slices.
func (p *plugin) republish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, republishPatience)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		p.publisher.publish(ctx)
		published, err := p.ownSlices(ctx)
		return err == nil && len(published) == p.publisher.sliceCount(), nil
	})
}

// watchOver keeps looking at hardware and ledger until ctx ends.
func (p *plugin) watchOver(ctx context.Context) {
	go wait.UntilWithContext(ctx, p.reconcile, reconcileInterval)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		changed, err := p.hardware.look(ctx, p.cards)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The cards cannot be listed")
			return
		}
		if changed {
			p.publisher.publish(ctx)
		}
	}, cmp.Or(p.LookInterval, defaultLookInterval))
}

func (p *plugin) reconcile(ctx context.Context) {
	p.report(ctx, p.claims.Reconcile(ctx, func(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
		c, err := p.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return c, err
	}))
}

func (p *plugin) report(ctx context.Context, findings []claim.Finding) {
	for _, f := range findings {
		p.metrics.findings.WithLabelValues(f.Reason, result(f.Err)).Inc()
		message := f.Message
		if f.Err != nil {
			message += fmt.Sprintf(": %v", f.Err)
		}
		p.events.warn(ctx, f.Reason, message)
	}
}
