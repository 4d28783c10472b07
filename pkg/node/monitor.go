package node

import (
	"cmp"
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/share"
)

// monitor checks the GPUs of the node, and publishes them: which there are, how they are shared,
// their health, and what cannot be allocated now.
type monitor struct {
	*base
	claims    *claims
	publisher *publisher.Publisher
	// sharing decides how the GPUs are shared.
	sharing *share.State
	// troubles are the errors of GPUs that are not over.
	troubles *inventory.Troubles
	// failures are the devices that could not be prepared. publishing is locked while they
	// are published.
	failures   inventory.Failures
	publishing sync.Mutex

	// looking is locked while GPUs are checked or changed. It protects the fields below.
	looking sync.Mutex
	// desired has the desired state of the GPUs by PCI address.
	desired map[string]profile.Desired
	// seenObstacles has what the last check found, by GPU.
	seenObstacles map[string][]gpu.Obstacle
}

func newMonitor(ctx context.Context, b *base, c *claims) *monitor {
	sharing, err := share.OpenState(b.sharingFile(), share.StateConfig{Events: b.events, Held: c.heldShares, HeldBy: c.heldBy})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the settings of sharing; newer ones may apply although claims hold shares")
	}
	troubles, err := inventory.OpenTroubles(b.healthFile())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Unhealthy GPUs may be allocated again")
	}
	return &monitor{
		base: b, claims: c, sharing: sharing, troubles: troubles,
		failures: inventory.Failures{FirstRetry: cmp.Or(b.firstRetry, firstRetry)},
		publisher: publisher.New(publisher.Config{
			Node: b.NodeName, Client: b.client, GPUs: b.gpus, Drivers: b.drivers, Ledger: b.records, Applied: b.applied, Sharing: sharing,
			Events: b.events, Metrics: b.metrics, ExtendedResources: b.ExtendedResources, MIGResources: b.MIGExtendedResources,
		}),
	}
}

// checkFirst checks the GPUs when the plugin starts.
func (m *monitor) checkFirst(ctx context.Context) error {
	before := m.troubles.List()
	if err := m.look(ctx); err != nil {
		return err
	}
	m.reportRecovered(ctx, before)
	m.lookForForeign(ctx)
	m.lookForObstacles(ctx)
	return nil
}

// check checks the GPUs, the MPS daemons and the memory limits of shares. While the GPUs are being
// changed, they are not checked: a change can take minutes, and checks the GPUs at its end.
func (m *monitor) check(ctx context.Context) {
	if m.looking.TryLock() {
		m.lookAtGPUs(ctx)
		m.looking.Unlock()
	}
	if m.publisher.IsMine() { // of two plugins, during a rolling update, only one restarts daemons and sets limits
		m.claims.lookAfterDaemons(ctx)
		m.claims.limiter.Check(ctx)
	}
	m.publisher.ClaimsChanged(ctx)
}

// checkNow checks the GPUs, after it has waited for a change of them.
func (m *monitor) checkNow(ctx context.Context) {
	m.looking.Lock()
	defer m.looking.Unlock()
	m.lookAtGPUs(ctx)
}

// Change runs do while the GPUs are not checked, because their health is unknown while they
// change, and checks them afterwards.
func (m *monitor) Change(ctx context.Context, do func()) {
	m.looking.Lock()
	defer m.looking.Unlock()
	do()
	if err := m.look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the GPUs after they were changed")
	}
}

func (m *monitor) lookAtGPUs(ctx context.Context) {
	if err := m.look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the GPUs")
	}
	m.lookForForeign(ctx)
	m.lookForObstacles(ctx)
}
