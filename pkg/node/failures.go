package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// firstRetry is the pause before a device that could not be prepared is tried again.
const firstRetry = 15 * time.Second

// A device that could not be prepared attracts the next pod, too, because it stays free. So it is
// tainted at once, with all that need the same. The kubelet goes on asking for the claim; a
// success removes the taint. The pod may be deleted, so the node also tries by itself.

// Failed records that a claim could not be prepared, and reports whether its devices are tainted for
// it.
func (m *monitor) Failed(ctx context.Context, err error) bool {
	step, device := failedStep(err)
	if step == "" {
		return false
	}
	if obstacles, err := m.obstaclesOf(ctx, device.GPU); err == nil && slices.ContainsFunc(obstacles, func(o gpu.Obstacle) bool {
		return o.Placement == device.Base().Name()
	}) {
		return true // the next checks find it, too, and notice its end
	}
	m.failures.Failed(step, device, err.Error(), time.Now())
	m.PublishFailures(ctx)
	return true
}

// failedStep returns what failed for which device. It is empty for what would not fail for other
// claims, or is noticed otherwise: a call that takes too long may have waited for other claims,
// and if the hardware hangs, the checks of its health fail.
func failedStep(err error) (inventory.Step, gpu.Placement) {
	failed := (*claim.StepError)(nil)
	switch {
	case !errors.As(err, &failed), claim.IsTransient(failed), errors.Is(failed, cdi.ErrDeleted), errors.Is(failed, gpu.ErrLost), errors.As(failed, new(*gpu.DriverError)):
		return "", gpu.Placement{}
	case failed.Any:
		return inventory.StepClaim, failed.Device
	case failed.Op == steps.OpJoin:
		return inventory.StepShare, failed.Device
	case errors.Is(failed, gpu.ErrInUse):
		return inventory.StepMode, failed.Device
	}
	return inventory.StepCreate, failed.Device
}

// Worked records that the devices of a claim were prepared.
func (m *monitor) Worked(ctx context.Context, r ledger.Record) {
	for _, d := range r.Devices {
		if !d.Admin {
			m.failures.Worked(d.Placement)
		}
	}
	m.PublishFailures(ctx)
}

// PublishFailures taints the devices that need what failed, or whose place is not free after a
// release, and reports them.
func (m *monitor) PublishFailures(ctx context.Context) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	all := map[string][]gpu.Obstacle{}
	for _, g := range m.gpus.List() {
		before, now := m.publisher.FailuresOn(g.PCIAddress), slices.Concat(m.failures.On(&g.GPU), m.claims.LeftInTheWay(&g.GPU))
		if len(now) > 0 {
			all[g.PCIAddress] = now
		}
		m.reportObstacles(ctx, g.Name(), before, now)
	}
	m.publisher.SetFailures(context.WithoutCancel(ctx), all)
}

// retryFailed retries what failed and is due.
func (m *monitor) retryFailed(ctx context.Context) {
	for _, f := range m.failures.Due(time.Now()) {
		m.retry(ctx, f)
	}
}

func (m *monitor) retry(ctx context.Context, f inventory.Failure) {
	gpus := m.gpus.List()
	i := slices.IndexFunc(gpus, func(g inventory.GPU) bool { return g.PCIAddress == f.GPU })
	if i < 0 {
		return
	}
	if _, ok := gpus[i].Placement(f.Name()); !ok {
		m.failures.Forget(f) // the GPU has another mode or driver now
		m.PublishFailures(ctx)
		return
	}
	if !m.publisher.IsFree(&gpus[i], f.Name()) {
		return
	}
	tried, err := m.claims.Try(ctx, f.Placement)
	switch {
	case ctx.Err() != nil:
		return
	case !tried:
		m.failures.Postpone(f, time.Now())
	case err == nil:
		m.failures.Worked(f.Placement)
	default:
		m.failures.Failed(f.Step, f.Placement, f.Reason, time.Now())
	}
	klog.FromContext(ctx).V(2).Info("Tried a device that could not be prepared", "device", f.Name(), "tried", tried, "err", err)
	m.PublishFailures(ctx)
}
