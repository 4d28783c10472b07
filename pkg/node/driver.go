package node

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

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/gate"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/sharing"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

// driver answers the calls of the kubelet. It implements kubeletplugin.DRAPlugin.
type driver struct {
	claims    *claim.Manager
	gpus      *inventory.GPUs
	publisher *publisher.Publisher
	metrics   *telemetry.Metrics
	daemons   *sharing.Daemons
	status    *telemetry.ClaimStatus
	// uninstallation refuses new claims while Tranche is being uninstalled; may be nil.
	uninstallation *uninstallation
	// nudge is called after claims were prepared or released.
	nudge func()
	// trouble is told of claims that the hardware cannot prepare; may be nil.
	trouble trouble
	// calls is read-locked by each call of the kubelet, and locked at the end.
	calls sync.RWMutex
	// stop ends the plugin with an error that only a restart can fix.
	stop context.CancelCauseFunc
}

// trouble remembers claims that the hardware cannot prepare.
type trouble interface {
	Unprepared(c *resourceapi.ResourceClaim, err error)
	Prepared(uid types.UID)
}

var _ kubeletplugin.DRAPlugin = (*driver)(nil)

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. It prepares the claims of a batch
// in parallel; claims on the same GPU wait for each other.
func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
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

// advise adds to an error what its reader can do. The kubelet retries with the same devices, so
// a pod that was scheduled before its busy GPU was tainted waits until the GPU is free.
func advise(err error) error {
	if errors.Is(err, gpu.ErrInUse) {
		return fmt.Errorf("%w; this is retried until the process ends: to have the pod scheduled to another GPU, delete it", err)
	}
	return err
}

// claimsChanged is called after claims were prepared or released.
func (d *driver) claimsChanged(ctx context.Context) {
	d.publisher.ClaimsChanged(context.WithoutCancel(ctx))
	d.nudge()
}

func (d *driver) prepare(ctx context.Context, c *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KObj(c), "claimUID", c.UID)
	start := time.Now()
	before, _ := d.claims.Ledger.Get(c.UID)
	record, err := ledger.Record{}, d.refuse(d.claims.Ledger.Has(c.UID))
	if err == nil {
		record, err = d.claims.Prepare(klog.NewContext(ctx, logger), c)
	}
	d.metrics.Operation("prepare", start, err)
	d.remember(c, err)
	if err != nil {
		logger.Error(err, "Prepare failed", "took", time.Since(start))
		d.tellDetail(ctx, err)
		if errors.Is(err, cdi.ErrDeleted) {
			d.stop(fmt.Errorf("the plugin restarts to mount its CDI folder again: %w", err))
		}
		err = advise(err)
		d.status.Failed(ctx, c, err)
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
	d.status.Prepared(ctx, c, record)
	d.publisher.Events.WarnSeveralMIG(ctx, before, record)
	return kubeletplugin.PrepareResult{Devices: devices}
}

// remember remembers a claim that failed because of the hardware, not because of what the claim
// asks for, of other claims, of a process, or because it takes long: users must not make a
// rollout fail.
func (d *driver) remember(c *resourceapi.ResourceClaim, err error) {
	var failed *claim.HardwareError
	var closed *gate.ClosedError
	passes := errors.Is(err, gpu.ErrInUse) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &closed)
	switch {
	case d.trouble == nil:
	case err == nil:
		d.trouble.Prepared(c.UID)
	case errors.As(err, &failed) && !passes:
		d.trouble.Unprepared(c, err)
	}
}

// shareID returns the ID of a share; nil for a device that is not a share.
func shareID(d ledger.Device) *types.UID {
	if d.ShareID == "" {
		return nil
	}
	return &d.ShareID
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.calls.RLock()
	defer d.calls.RUnlock()
	errs := make([]error, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() { errs[i] = d.unprepare(ctx, c) })
	}
	wg.Wait()
	d.claimsChanged(ctx)
	byUID := make(map[types.UID]error, len(claims))
	for i, c := range claims {
		byUID[c.UID] = errs[i]
	}
	return byUID, nil
}

func (d *driver) unprepare(ctx context.Context, c kubeletplugin.NamespacedObject) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KRef(c.Namespace, c.Name), "claimUID", c.UID)
	start := time.Now()
	held, _ := d.claims.Ledger.Get(c.UID)
	err := d.claims.Unprepare(klog.NewContext(ctx, logger), ledger.ClaimRef{UID: c.UID, Namespace: c.Namespace, Name: c.Name})
	d.metrics.Operation("unprepare", start, err)
	if d.trouble != nil {
		d.trouble.Prepared(c.UID)
	}
	if err != nil {
		logger.Error(err, "Unprepare failed", "took", time.Since(start))
		d.tellDetail(ctx, err)
		d.tellPods(ctx, c.UID, err)
		return fmt.Errorf("release claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	d.tellLeftovers(ctx, held)
	return nil
}

// tellLeftovers writes events about the node and the pods of a claim that was released although
// its devices could not be removed from the hardware.
func (d *driver) tellLeftovers(ctx context.Context, held ledger.Record) {
	for _, left := range d.claims.Leftovers(held.Claim) {
		d.publisher.Events.Warn(ctx, v1alpha1.EventReleaseNotFinished, claim.WhyLeft(left))
		for _, pod := range held.Pods {
			d.publisher.Events.WarnPod(ctx, held.Claim.Namespace, pod, v1alpha1.EventReleaseNotFinished, claim.WhyLeft(left))
		}
	}
}

// tellDetail writes an event about the node for administrators. It names objects of other
// namespaces that conflict with a claim, which users of the claim must not see.
func (d *driver) tellDetail(ctx context.Context, err error) {
	if conflict := (*plan.ConflictError)(nil); errors.As(err, &conflict) {
		d.publisher.Events.Warn(ctx, v1alpha1.EventClaimConflict, conflict.Detail())
	}
}

// tellPods writes an event about the pods whose claim cannot be released: the kubelet reports
// that only in its log.
func (d *driver) tellPods(ctx context.Context, uid types.UID, err error) {
	record, _ := d.claims.Ledger.Get(uid)
	for _, pod := range record.Pods {
		d.publisher.Events.WarnPod(ctx, record.Claim.Namespace, pod, v1alpha1.EventReleaseFailed,
			fmt.Sprintf("The GPU of claim %s cannot be released, which is retried: %v", record.Claim.Name, err))
	}
}

// HandleError implements kubeletplugin.DRAPlugin: it handles background errors of the helper.
func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	if err := d.publisher.HandleError(ctx, err, msg); err != nil {
		d.stop(err)
	}
}
