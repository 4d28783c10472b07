package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// inUsePatience is how long a release waits for the last process of a container to end.
const inUsePatience = 5 * time.Second

// run performs steps. Its caller holds the locks of all GPUs.
type run struct {
	*Manager
	operation string
	record    ledger.Record
	// before is the claim's record at the start, possibly outdated; nil if there was none.
	before *ledger.Record
	// live has the partitions at the start, by GPU.
	live map[string][]gpu.Partition
	// sharers are the current records of other claims on the GPUs.
	sharers []ledger.Record
	// asked: the kubelet asks for this release, so the pods of the claim have ended.
	asked bool
	// left is why devices are left behind, by their index.
	left map[int]error
}

// removeStaleFiles removes the CDI files that were written before a GPU's driver was reloaded. A
// container that restarts with such a file could get the devices of another claim. Reconcile
// prepares their claims again. The caller holds the locks of the GPUs.
func (m *Manager) removeStaleFiles(wanted ledger.Record) error {
	for _, r := range m.Ledger.On(gpusOf(wanted)) {
		if !m.isStale(r) {
			continue
		}
		if err := m.CDI.Remove(r.Claim.UID); err != nil {
			return err
		}
	}
	return nil
}

// isStale reports whether a device of a record has lapsed.
func (m *Manager) isStale(r ledger.Record) bool {
	return slices.ContainsFunc(r.Devices, m.Lapsed)
}

// do performs the steps in order. If a step of a Prepare fails, this step and those before it
// are undone; a release that fails is retried later. A share that takes longer returns a
// *NotReadyError, and nothing is undone.
func (r *run) do(ctx context.Context, todo []steps.Step) error {
	for i, step := range todo {
		if r.BeforeStep != nil {
			r.BeforeStep(ctx, r.record.Clone(), &step)
		}
		start := time.Now()
		err := r.step(ctx, step)
		if notReady := (*NotReadyError)(nil); errors.As(err, &notReady) {
			r.observe(r.operation, string(step.Op), start, nil)
			return r.blame(step, err)
		}
		r.observe(r.operation, string(step.Op), start, err)
		if err == nil {
			continue
		}
		if r.operation == names.OperationPrepare {
			err = errors.Join(r.blame(step, err), r.undo(ctx, todo[:i+1]))
		}
		return err
	}
	if r.BeforeStep != nil {
		r.BeforeStep(ctx, r.record.Clone(), nil)
	}
	return nil
}

func (r *run) step(ctx context.Context, step steps.Step) error {
	klog.FromContext(ctx).V(4).Info("Executing step", "operation", r.operation, "step", step.Op, "claim", klog.KRef(r.record.Claim.Namespace, r.record.Claim.Name), "claimUID", r.record.Claim.UID)
	switch step.Op {
	case steps.OpIntent:
		return r.Ledger.Put(r.record)
	case steps.OpCreate:
		return r.create(ctx, &r.record.Devices[step.Device])
	case steps.OpJoin:
		return r.join(ctx, step.Device)
	case steps.OpWriteCDI:
		return r.writeCDI(ctx)
	case steps.OpDone:
		return r.done()
	case steps.OpRemoveCDI:
		return r.CDI.Remove(r.record.Claim.UID)
	case steps.OpLeave:
		return r.orLeave(step.Device, r.leave(ctx, step.Device))
	case steps.OpDestroy:
		return r.orLeave(step.Device, r.destroy(ctx, step.Device))
	case steps.OpForget:
		return r.forget(ctx)
	}
	return fmt.Errorf("unknown step %q", step.Op)
}

// undo undoes the steps of a failed Prepare, the last one first, with a time limit of its own.
// What cannot be undone stays in the ledger for the next attempt.
func (r *run) undo(ctx context.Context, taken []steps.Step) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoBudget, fmt.Errorf("not finished within %s, the limit for undoing", undoBudget))
	defer cancel()
	for _, step := range slices.Backward(taken) {
		start := time.Now()
		err := r.undoStep(ctx, step)
		r.observe(r.operation, names.PhaseUndoPrefix+string(step.Op), start, err)
		if err != nil {
			return fmt.Errorf("and it could not be undone, which the next attempt retries: %w", err)
		}
	}
	return r.dropIntent()
}

func (r *run) undoStep(ctx context.Context, step steps.Step) error {
	switch step.Op {
	case steps.OpCreate:
		d := r.record.Devices[step.Device]
		if !d.Made || d.HandedOut || steps.HeldByOthers(d, r.sharers) {
			return nil
		}
		return named("destroy", d.Placement.Base(), r.Manager.destroy(ctx, d.Placement.Base()))
	case steps.OpJoin:
		if r.record.Devices[step.Device].HandedOut {
			return nil
		}
		return r.leave(ctx, step.Device)
	case steps.OpWriteCDI:
		if slices.ContainsFunc(r.record.Devices, func(d ledger.Device) bool { return d.HandedOut }) {
			return nil
		}
		return r.CDI.Remove(r.record.Claim.UID)
	}
	return nil
}

// done records that the claim is prepared.
func (r *run) done() error {
	done := r.record.Clone()
	done.State = ledger.Prepared
	for i := range done.Devices {
		done.Devices[i].HandedOut = true
	}
	if err := r.Ledger.Put(done); err != nil {
		return err
	}
	r.record = done
	return nil
}

// dropIntent restores the record from before the run, if containers may use its devices, and
// otherwise deletes it.
func (r *run) dropIntent() error {
	if r.before != nil && r.before.HandedOut() {
		return r.Ledger.Put(*r.before)
	}
	return r.Ledger.Delete(r.record.Claim.UID)
}

func (r *run) create(ctx context.Context, d *ledger.Device) error {
	base := d.Placement.Base()
	driver, err := r.Driver(base.GPU)
	if err != nil {
		return named("create", base, err)
	}
	part, err := driver.Create(ctx, base)
	if err != nil {
		return named("create", base, err)
	}
	if base.Type != gpu.TypeGPU && (!part.Complete || !part.Is(base)) {
		return fmt.Errorf("create %s: the hardware reports %s (complete: %t) instead", base.Name(), part.Name(), part.Complete)
	}
	d.UUID = part.UUID
	return nil
}

func (r *run) join(ctx context.Context, device int) error {
	if err := r.readSettings(ctx, device); err != nil {
		return err
	}
	if err := r.Shares.Join(ctx, holder(r.record, device, r.sharers)); err != nil {
		return fmt.Errorf("set up %s: %w", r.record.Devices[device].Name, err)
	}
	return nil
}

// leave releases a share, even if its GPU's driver was reloaded since: its daemon may still run.
func (r *run) leave(ctx context.Context, device int) error {
	if r.Shares == nil {
		return nil // this plugin was started without sharing
	}
	h := holder(r.record, device, r.sharers)
	h.Lapsed = r.Lapsed(h.Device)
	// The daemon of leftovers has the name of their claim, unless the claim was prepared again.
	if claim := ledger.ClaimOf(h.Claim.UID); !r.Ledger.Has(claim) {
		h.Claim.UID = claim
	}
	if err := r.Shares.Leave(ctx, h); err != nil {
		return fmt.Errorf("release %s: %w", h.Device.Name, err)
	}
	return nil
}

// destroy destroys a partition. Processes of a container that has just been stopped may use it a
// moment longer.
func (r *run) destroy(ctx context.Context, device int) error {
	if err := r.whyLeft(device); err != nil {
		return err // a daemon may still use it
	}
	p := r.record.Devices[device].Placement.Base()
	if r.record.Released {
		return named("destroy", p, r.Manager.destroy(ctx, p)) // the next look tries again
	}
	var inUse error
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, inUsePatience, true, func(context.Context) (bool, error) {
		// The call has the context of the whole release: if the patience ended it, its
		// error would not say which process uses the partition.
		err := r.Manager.destroy(ctx, p)
		if errors.Is(err, gpu.ErrInUse) {
			inUse = err
			return false, nil
		}
		return true, err
	})
	if inUse != nil && wait.Interrupted(err) {
		err = inUse
	}
	return named("destroy", p, err)
}

func named(verb string, p gpu.Placement, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, p.Name(), err)
}

func (r *run) writeCDI(ctx context.Context) error {
	common, err := r.commonEdits(ctx)
	if err != nil {
		return fmt.Errorf("find out what containers need from the driver: %w", err)
	}
	var devices []cdi.Device
	seen := map[string]bool{}
	for i, d := range r.record.Devices {
		if seen[d.Key()] {
			continue
		}
		seen[d.Key()] = true
		edits, err := r.edits(ctx, i)
		if err != nil {
			return &StepError{Op: steps.OpWriteCDI, Device: d.Placement, err: fmt.Errorf("find out what containers need for %s: %w", d.Name, err)}
		}
		devices = append(devices, cdi.Device{Name: d.Key(), Edits: withEnv(edits, d)})
	}
	record, err := ledger.Encode(r.record)
	if err != nil {
		return err
	}
	return r.CDI.Write(r.record.Claim.UID, record, common, devices)
}

// commonEdits is what a container needs beside its devices. With GPUs of two vendors, it needs what
// both drivers say.
func (r *run) commonEdits(ctx context.Context) (*cdispecs.ContainerEdits, error) {
	var drivers []hardware.Driver
	gpus := map[hardware.Driver][]string{}
	for _, gpuID := range gpusOf(r.record) {
		driver, err := r.Driver(gpuID)
		if err != nil {
			return nil, err
		}
		if gpus[driver] == nil {
			drivers = append(drivers, driver)
		}
		gpus[driver] = append(gpus[driver], gpuID)
	}
	all := make([]*cdispecs.ContainerEdits, len(drivers))
	for i, driver := range drivers {
		var err error
		if all[i], err = driver.CommonEdits(ctx, gpus[driver]); err != nil {
			return nil, err
		}
	}
	return merge(all...), nil
}

// edits is what a container needs for one device of the record.
func (r *run) edits(ctx context.Context, device int) (*cdispecs.ContainerEdits, error) {
	d := r.record.Devices[device]
	driver, err := r.Driver(d.Placement.GPU)
	if err != nil {
		return nil, err
	}
	edits, err := driver.Edits(ctx, d.Placement.Base())
	if err != nil && d.Admin && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "A monitor starts without a GPU that cannot be described", "claim", klog.KRef(r.record.Claim.Namespace, r.record.Claim.Name), "device", d.Name)
		return &cdispecs.ContainerEdits{}, nil
	}
	if err != nil || !d.IsShare() {
		return edits, err
	}
	more, err := r.Shares.Edits(ctx, holder(r.record, device, r.sharers))
	if err != nil {
		return nil, err
	}
	return merge(edits, more), nil
}

// withEnv adds an environment variable that describes the device. The device is part of the
// variable's name, so that a container can have several.
func withEnv(edits *cdispecs.ContainerEdits, d ledger.Device) *cdispecs.ContainerEdits {
	env := names.EnvDevicePrefix + strings.ToUpper(strings.ReplaceAll(d.Key(), "-", "_")) + "=" + describe(d)
	if d.UUID != "" {
		env += " " + d.UUID
	}
	return merge(edits, &cdispecs.ContainerEdits{Env: []string{env}})
}

// describe says what a device is: "gpu", "1g.10gb", "memory-share 2000Mi",
// "fraction-share 0.5".
func describe(d ledger.Device) string {
	p := d.Placement
	switch {
	case p.Share != nil && p.Share.By == gpu.ByFraction:
		return fmt.Sprintf("fraction-share %v", float64(d.Amount.Fraction)/gpu.WholeFraction)
	case p.Share != nil:
		return fmt.Sprintf("memory-share %dMi", d.Amount.Memory/gpu.MiB)
	case p.Profile != "":
		return p.Profile
	}
	return string(p.Type)
}

// merge returns all edits as one, and changes none of them.
func merge(all ...*cdispecs.ContainerEdits) *cdispecs.ContainerEdits {
	merged := &cdiapi.ContainerEdits{}
	for _, edits := range all {
		merged.Append(&cdiapi.ContainerEdits{ContainerEdits: edits})
	}
	return merged.ContainerEdits
}
