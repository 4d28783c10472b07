package node

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/kubelet"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
)

// base is what all parts of the plugin work with.
type base struct {
	*Config
	client  kubernetes.Interface
	node    *inventory.Node
	events  *telemetry.Events
	metrics *telemetry.Metrics
	// records has what claims hold, broken the files of it that were set aside at the start.
	records *ledger.Ledger
	broken  []ledger.Broken
	// roster has all GPUs of the node with all of their possible devices, including GPUs that
	// do not answer. gpus are those that were found.
	roster  *inventory.Roster
	gpus    *inventory.GPUs
	drivers *inventory.Drivers
	// applied is the applied profile.
	applied      *partition.State
	registration *kubelet.Registration
	// stop ends the plugin with an error that only a restart can fix.
	stop context.CancelCauseFunc
}

// openBase reads the node and the plugin's files, and serves metrics and health until closeBase
// is called.
func openBase(ctx context.Context, c *Config, client kubernetes.Interface, stop context.CancelCauseFunc) (b *base, closeBase func(), err error) {
	node, err := inventory.GetNode(ctx, client, c.NodeName)
	if err != nil {
		return nil, nil, fmt.Errorf("read node %s: %w", c.NodeName, err)
	}
	records, broken, err := ledger.Open(filepath.Join(c.DataDir(), "claims"))
	if err != nil {
		return nil, nil, err
	}
	events, err := telemetry.OpenEvents(ctx, client, node)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			events.Close()
		}
	}()
	vendors, err := c.Machine.Vendors()
	if err != nil {
		events.LastWords(ctx, names.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
		return nil, nil, err
	}
	b = &base{
		Config: c, client: client, node: inventory.NewNode(client, node, vendors, c.ManagedNodes), events: events, metrics: telemetry.NewMetrics(c.NodeName, records.List),
		records: records, broken: broken, gpus: &inventory.GPUs{}, registration: &kubelet.Registration{}, stop: stop,
	}
	if b.roster, err = inventory.OpenRoster(c.rosterFile()); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the list of the node's GPUs; profiles count only GPUs that answer")
	}
	if b.applied, err = partition.OpenState(c.profileFile()); err != nil {
		then := "so the node has none until the controller applies it again"
		if b.applied.Unread() != nil {
			then = "so the node's profile and its partitions do not change until it can be"
		}
		events.Warn(ctx, names.EventProfileUnknown, fmt.Sprintf("The applied profile of this node, in %s, cannot be read, %s: %v", b.applied.File, then, err))
	}
	b.drivers = inventory.NewDrivers(inventory.DriversConfig{Vendors: vendors, Upgrades: b.node.Upgrades, Roster: b.roster, Events: events, Stop: stop})
	stopHTTP, err := serveHTTP(ctx, c.HTTPAddress, b.metrics, b.ready, stop)
	if err != nil {
		return nil, nil, err
	}
	return b, func() { stopHTTP(); events.Close() }, nil
}

// ready says why the plugin is not ready, nil if it is: the kubelet has not registered it, or
// an expected driver cannot be used.
func (b *base) ready() error {
	if err := b.registration.Ready(); err != nil {
		return err
	}
	return b.drivers.Problem()
}

// waitForHardware waits until the node has a driver, GPUs of an earlier run, or claims that
// hold GPUs. If the driver cannot be used, the plugin serves the kubelet without it, because
// pods that hold GPUs must be able to end; the driver may be waiting for that. On nodes
// without GPUs, the plugin waits here for ever.
func (b *base) waitForHardware(ctx context.Context) error {
	if len(b.node.Upgrades()) > 0 {
		// Until the upgrade is over, the plugin may not find the GPUs.
		if err := b.node.Watch(ctx, b.stop); err != nil {
			return err
		}
	}
	reported := ""
	return wait.PollUntilContextCancel(ctx, b.idleInterval(), true, func(ctx context.Context) (bool, error) {
		if added := b.drivers.Open(ctx); len(added) > 0 || b.drivers.Problem() != nil || len(b.records.List()) > 0 {
			return true, nil //nolint:nilerr // a driver is expected
		}
		b.registration.SetIdle()
		if reason := b.drivers.WhyNone(); reason != reported {
			reported = reason
			klog.FromContext(ctx).Info("No GPUs to publish; checking again at intervals", "reason", reason, "interval", b.idleInterval())
		}
		return false, nil
	})
}

func (b *base) closeDrivers(ctx context.Context) {
	if err := b.drivers.Close(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot close the drivers")
	}
}
