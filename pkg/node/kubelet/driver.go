package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/share"
)

// Driver answers the calls of the kubelet. It implements kubeletplugin.DRAPlugin.
type Driver struct {
	Config
	// calls is read-locked by each call of the kubelet, and locked at the end.
	calls sync.RWMutex
}

var _ kubeletplugin.DRAPlugin = (*Driver)(nil)

// Config has what a Driver works with.
type Config struct {
	Claims    *claim.Manager
	GPUs      *inventory.GPUs
	Publisher *publisher.Publisher
	Metrics   *telemetry.Metrics
	Daemons   *share.Daemons
	Limiter   *share.Limiter
	Status    *telemetry.ClaimStatus
	Follower  Follower
	// Failures records the devices that cannot be prepared.
	Failures Failures
	// Stop ends the plugin with an error that only a restart can fix.
	Stop func(error)
}

// Follower reports the claims of the node. *follow.Follower is one.
type Follower interface {
	// Nudge is called after claims were prepared or released.
	Nudge()
	// Unprepared records that the hardware could not prepare a claim, Prepared that a claim was
	// prepared or released.
	Unprepared(c *resourceapi.ResourceClaim, err error)
	Prepared(uid types.UID)
}

// Failures remembers devices that could not be prepared, or whose place is not free after a release,
// so that they are tainted.
type Failures interface {
	// Failed records that a claim could not be prepared, and reports whether its devices are
	// tainted for it.
	Failed(ctx context.Context, err error) (tainted bool)
	// Worked records that the devices of a claim were prepared.
	Worked(ctx context.Context, r ledger.Record)
	PublishFailures(ctx context.Context)
}

// New returns a Driver.
func New(c Config) *Driver { return &Driver{Config: c} }

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. It prepares the claims of a batch
// in parallel; claims on the same GPU wait for each other.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.calls.RLock()
	defer d.calls.RUnlock()
	results := make([]kubeletplugin.PrepareResult, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() { results[i] = d.prepare(ctx, c) })
	}
	wg.Wait()
	d.claimsChanged(ctx)
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, c := range claims {
		byUID[c.UID] = results[i]
	}
	return byUID, nil
}

// advise adds to an error what its reader can do. The kubelet retries with the same devices.
func advise(err error, tainted bool) error {
	if tainted {
		return fmt.Errorf("%w; this is retried, and until it succeeds, no other pod gets these devices: to have the pod scheduled to others, delete it", err)
	}
	return err
}

// claimsChanged is called after claims were prepared or released.
func (d *Driver) claimsChanged(ctx context.Context) {
	d.Publisher.ClaimsChanged(context.WithoutCancel(ctx))
	d.Follower.Nudge()
}

func (d *Driver) prepare(ctx context.Context, c *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KObj(c), "claimUID", c.UID)
	start := time.Now()
	record, before, err := d.Claims.Prepare(klog.NewContext(ctx, logger), c)
	d.Metrics.Operation(names.OperationPrepare, start, err)
	tainted := d.remember(ctx, c, before, record, err)
	if err != nil {
		logger.Error(err, "Prepare failed", "took", time.Since(start))
		d.reportDetail(ctx, err)
		if errors.Is(err, cdi.ErrDeleted) {
			d.Stop(fmt.Errorf("the plugin restarts to mount its CDI folder again: %w", err))
		}
		err = advise(err, tainted)
		d.Status.Failed(ctx, c, err)
		return kubeletplugin.PrepareResult{Err: fmt.Errorf("prepare claim %s/%s: %w", c.Namespace, c.Name, err)}
	}
	devices := make([]kubeletplugin.Device, 0, len(record.Devices))
	for _, device := range record.Devices {
		devices = append(devices, kubeletplugin.Device{
			Requests:     []string{device.Request},
			PoolName:     device.Pool,
			DeviceName:   device.Name,
			ShareID:      shareID(device),
			CDIDeviceIDs: []string{cdi.DeviceID(c.UID, device.Key())},
			Metadata:     d.metadata(device),
		})
		logger.Info("Prepared", "device", device.Key(), "uuid", device.UUID, "took", time.Since(start))
	}
	d.Status.Prepared(ctx, c, record)
	d.Publisher.Events.WarnSeveralMIG(ctx, before, record)
	d.warnReducedLimits(ctx, c, before, record)
	return kubeletplugin.PrepareResult{Devices: devices}
}

// warnReducedLimits writes events about the pods of a claim that was not prepared before, whose shares have
// other memory limits than it asks for; about the claim if it is reserved for a group of pods.
func (d *Driver) warnReducedLimits(ctx context.Context, c *resourceapi.ResourceClaim, before, record ledger.Record) {
	if before.State == ledger.Prepared {
		return
	}
	for _, message := range steps.ReducedLimits(c, record) {
		if record.Group {
			d.Publisher.Events.WarnClaim(ctx, record.Claim, names.EventShareLimitReduced, message)
			continue
		}
		for _, pod := range record.Pods {
			d.Publisher.Events.WarnPod(ctx, record.Claim.Namespace, pod, names.EventShareLimitReduced, message)
		}
	}
}

// remember remembers a claim that failed because of the node, and reports whether its devices are
// tainted for it. before is the claim's record before, record the one that was prepared. Failures
// because of what the claim asks for or of other claims, or because it takes long, do not count.
// Those because of a process do not count for rollouts either: users must not make one fail.
func (d *Driver) remember(ctx context.Context, c *resourceapi.ResourceClaim, before, record ledger.Record, err error) (tainted bool) {
	failed := (*claim.StepError)(nil)
	switch {
	case err == nil:
		d.Follower.Prepared(c.UID)
	case errors.As(err, &failed) && failed.Op == steps.OpCreate && !claim.IsTransient(failed) && !errors.Is(failed, gpu.ErrInUse):
		d.Follower.Unprepared(c, err)
	}
	if err != nil {
		return d.Failures.Failed(ctx, err)
	}
	if before.State != ledger.Prepared {
		d.Failures.Worked(ctx, record)
	}
	return false
}

// shareID returns the ID of a share; nil for a device that is not a share.
func shareID(d ledger.Device) *types.UID {
	if d.ShareID == "" {
		return nil
	}
	return &d.ShareID
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.calls.RLock()
	defer d.calls.RUnlock()
	errs := make([]error, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() { errs[i] = d.unprepare(ctx, c) })
	}
	wg.Wait()
	d.Limiter.Released(ctx)
	d.claimsChanged(ctx)
	byUID := make(map[types.UID]error, len(claims))
	for i, c := range claims {
		byUID[c.UID] = errs[i]
	}
	return byUID, nil
}

func (d *Driver) unprepare(ctx context.Context, c kubeletplugin.NamespacedObject) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KRef(c.Namespace, c.Name), "claimUID", c.UID)
	start := time.Now()
	held, _ := d.Claims.Ledger.Get(c.UID)
	err := d.Claims.Unprepare(klog.NewContext(ctx, logger), ledger.ClaimRef{UID: c.UID, Namespace: c.Namespace, Name: c.Name})
	d.Metrics.Operation(names.OperationUnprepare, start, err)
	d.Follower.Prepared(c.UID)
	if err != nil {
		logger.Error(err, "Unprepare failed", "took", time.Since(start))
		d.reportDetail(ctx, err)
		d.reportPods(ctx, c.UID, err)
		return fmt.Errorf("release claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	d.reportLeftovers(ctx, held)
	return nil
}

// reportLeftovers writes events about the node and the pods of a claim that was released although
// its devices could not be removed from the hardware.
func (d *Driver) reportLeftovers(ctx context.Context, held ledger.Record) {
	all := d.Claims.Leftovers(held.Claim)
	if len(all) > 0 {
		d.Failures.PublishFailures(ctx)
	}
	for _, left := range all {
		d.Publisher.Events.Warn(ctx, names.EventReleaseNotFinished, claim.WhyLeft(left))
		for _, pod := range held.Pods {
			d.Publisher.Events.WarnPod(ctx, held.Claim.Namespace, pod, names.EventReleaseNotFinished, claim.WhyLeft(left))
		}
	}
}

// reportDetail writes an event about the node for administrators. It names objects of other
// namespaces that conflict with a claim, which users of the claim must not see.
func (d *Driver) reportDetail(ctx context.Context, err error) {
	if conflict := (*steps.ConflictError)(nil); errors.As(err, &conflict) {
		d.Publisher.Events.Warn(ctx, names.EventClaimConflict, conflict.Detail())
	}
}

// reportPods writes an event about the pods whose claim cannot be released: the kubelet reports
// that only in its log.
func (d *Driver) reportPods(ctx context.Context, uid types.UID, err error) {
	record, _ := d.Claims.Ledger.Get(uid)
	for _, pod := range record.Pods {
		d.Publisher.Events.WarnPod(ctx, record.Claim.Namespace, pod, names.EventReleaseFailed,
			fmt.Sprintf("The GPU of claim %s cannot be released, which is retried: %v", record.Claim.Name, err))
	}
}

// HandleError implements kubeletplugin.DRAPlugin: it handles background errors of the helper.
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	if err := d.Publisher.HandleError(ctx, err, msg); err != nil {
		d.Stop(err)
	}
}

// WaitForCalls blocks new calls of the kubelet, and waits until calls in progress have ended.
// Otherwise stopping the server would interrupt them, and the kubelet retries late.
func (d *Driver) WaitForCalls(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		d.calls.Lock()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(callPatience):
		klog.FromContext(ctx).Info("A call of the kubelet does not end, so the plugin ends without waiting for it", "waited", fmt.Sprint(callPatience))
	}
}

// callPatience is longer than a call may take, and shorter than the pod's grace period.
const callPatience = 45 * time.Second
