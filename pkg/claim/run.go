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
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// inUsePatience is how long a release waits for the last process of a container
// to let go of its partition.
const inUsePatience = 5 * time.Second

// run takes the steps of one plan. The locks of all its GPUs are held.
type run struct {
	*Manager
	operation string
	record    ledger.Record
	// before is the claim's record when the run began, whether it is still true or not;
	// nil if there was none.
	before *ledger.Record
	// live is what existed when the run began.
	live map[string][]gpu.Partition
	// sharers is what is still true of the other claims' records on the GPUs.
	sharers []ledger.Record
	// left are indexes of the devices of a release that could not be cleaned up,
	// because their GPU is lost.
	left map[int]bool
}

// do takes the steps in order. When one of a Prepare fails, it and those before
// it are undone; a release that fails is left as it is and taken up again. A share
// that only takes longer fails with a *NotReadyError, and nothing is undone.
func (r *run) do(ctx context.Context, steps []plan.Step) error {
	for i, step := range steps {
		if r.BeforeStep != nil {
			r.BeforeStep(ctx, r.record.Clone(), &step)
		}
		start := time.Now()
		err := r.step(ctx, step)
		if notReady := (*NotReadyError)(nil); errors.As(err, &notReady) {
			r.observe(r.operation, string(step.Op), start, nil)
			return err
		}
		r.observe(r.operation, string(step.Op), start, err)
		if err == nil {
			continue
		}
		if r.operation == "prepare" {
			err = errors.Join(err, r.undo(ctx, steps[:i+1]))
		}
		return err
	}
	if r.BeforeStep != nil {
		r.BeforeStep(ctx, r.record.Clone(), nil)
	}
	return nil
}

func (r *run) step(ctx context.Context, step plan.Step) error {
	klog.FromContext(ctx).V(4).Info("Step", "operation", r.operation, "step", step.Op, "claim", r.record.Claim.String(), "claimUID", r.record.Claim.UID)
	switch step.Op {
	case plan.OpIntent:
		return r.Ledger.Put(r.record)
	case plan.OpCreate:
		return r.create(ctx, &r.record.Devices[step.Device])
	case plan.OpJoin:
		return r.join(ctx, step.Device)
	case plan.OpWriteCDI:
		return r.writeCDI(ctx)
	case plan.OpDone:
		return r.done()
	case plan.OpRemoveCDI:
		return r.CDI.Remove(r.record.Claim.UID)
	case plan.OpLeave:
		return r.unlessLost(step.Device, r.leave(ctx, step.Device))
	case plan.OpDestroy:
		return r.unlessLost(step.Device, r.destroy(ctx, r.record.Devices[step.Device].Placement))
	case plan.OpForget:
		return r.forget()
	}
	return fmt.Errorf("unknown step %q", step.Op)
}

// undo takes back the steps of a failed Prepare, the last one first, with time
// of its own. What cannot be undone stays in the ledger for the next try.
func (r *run) undo(ctx context.Context, taken []plan.Step) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoBudget, fmt.Errorf("the %s for undoing are used up", undoBudget))
	defer cancel()
	for _, step := range slices.Backward(taken) {
		start := time.Now()
		err := r.undoStep(ctx, step)
		r.observe(r.operation, "undo-"+string(step.Op), start, err)
		if err != nil {
			return fmt.Errorf("and it could not be undone, which is tried again with the next attempt: %w", err)
		}
	}
	return r.dropIntent()
}

func (r *run) undoStep(ctx context.Context, step plan.Step) error {
	switch step.Op {
	case plan.OpCreate:
		d := r.record.Devices[step.Device]
		if !d.Made || d.HandedOut || plan.HeldByOthers(d, r.sharers) {
			return nil
		}
		if err := r.Hardware.Destroy(ctx, d.Placement.Base()); err != nil {
			return fmt.Errorf("destroy %s: %w", d.Placement.Base().Name(), err)
		}
		return nil
	case plan.OpJoin:
		if r.record.Devices[step.Device].HandedOut {
			return nil
		}
		return r.leave(ctx, step.Device)
	case plan.OpWriteCDI:
		if slices.ContainsFunc(r.record.Devices, func(d ledger.Device) bool { return d.HandedOut }) {
			return nil
		}
		return r.CDI.Remove(r.record.Claim.UID)
	}
	return nil
}

// done writes down that the claim is prepared.
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

// keepHandedOut marks what containers may be using, because an earlier Prepare had
// succeeded with it and it still exists. held is what is still true of the claim's
// record, nil if nothing. The marks are written down with the intent, so that they
// outlive this process.
func keepHandedOut(held *ledger.Record, wanted ledger.Record, live map[string][]gpu.Partition) {
	if held == nil {
		return
	}
	for i := range wanted.Devices {
		d := &wanted.Devices[i]
		for _, e := range held.Devices {
			if e.Request == d.Request && e.Key() == d.Key() && held.WasHandedOut(e) && (e.Admin || plan.Exists(e, live[e.Placement.GPU])) {
				d.HandedOut, d.UUID = true, e.UUID
			}
		}
	}
}

// dropIntent puts the ledger back to what it said before the run, as long as that had
// handed out anything.
func (r *run) dropIntent() error {
	if r.before != nil && r.before.HandedOut() {
		return r.Ledger.Put(*r.before)
	}
	return r.Ledger.Delete(r.record.Claim.UID)
}

func (r *run) create(ctx context.Context, d *ledger.Device) error {
	base := d.Placement.Base()
	part, err := r.Hardware.Create(ctx, base)
	if err != nil {
		return fmt.Errorf("make %s: %w", base.Name(), err)
	}
	if base.Type != gpu.TypeGPU && (!part.Complete || !part.Is(base)) {
		return fmt.Errorf("make %s: the hardware shows %s (complete: %t) instead", base.Name(), part.Name(), part.Complete)
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

// leave is there for every share of a record, also where its GPU's driver has
// been loaded anew: what was started for it may still run.
func (r *run) leave(ctx context.Context, device int) error {
	if r.Shares == nil {
		return nil // who set it up is not part of this plugin any more
	}
	h := holder(r.record, device, r.sharers)
	h.Lapsed = h.Device.LoadID != r.LoadID(h.Device.Placement.GPU)
	if err := r.Shares.Leave(ctx, h); err != nil {
		return fmt.Errorf("take back what was set up for %s: %w", h.Device.Name, err)
	}
	return nil
}

// destroy takes a partition apart. Processes of a container that has just been
// stopped may hold it a moment longer.
func (r *run) destroy(ctx context.Context, p gpu.Placement) error {
	p = p.Base()
	var inUse error
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, inUsePatience, true, func(context.Context) (bool, error) {
		// The call has the time of the whole release: cut short by the end of
		// our patience, it would only say so, and not who is in the way.
		err := r.Hardware.Destroy(ctx, p)
		if errors.Is(err, gpu.ErrInUse) {
			inUse = err
			return false, nil
		}
		return true, err
	})
	if inUse != nil && wait.Interrupted(err) {
		err = inUse
	}
	if err != nil {
		return fmt.Errorf("destroy %s: %w", p.Name(), err)
	}
	return nil
}

func (r *run) writeCDI(ctx context.Context) error {
	common, err := r.Hardware.CommonEdits(ctx, gpusOf(r.record))
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
			return fmt.Errorf("find out what containers need for %s: %w", d.Name, err)
		}
		devices = append(devices, cdi.Device{Name: d.Key(), Edits: withEnv(edits, d)})
	}
	record, err := ledger.Encode(r.record)
	if err != nil {
		return err
	}
	return r.CDI.Write(r.record.Claim.UID, record, common, devices)
}

// edits is what a container needs for one device of the record.
func (r *run) edits(ctx context.Context, device int) (*cdispecs.ContainerEdits, error) {
	d := r.record.Devices[device]
	edits, err := r.Hardware.Edits(ctx, d.Placement.Base())
	if err != nil || !d.IsShare() {
		return edits, err
	}
	more, err := r.Shares.Edits(ctx, holder(r.record, device, r.sharers))
	if err != nil {
		return nil, err
	}
	return both(edits, more), nil
}

// withEnv names the device in the container's environment. The variable carries
// the device's name, so that several devices in one container do not overwrite
// each other's.
func withEnv(edits *cdispecs.ContainerEdits, d ledger.Device) *cdispecs.ContainerEdits {
	env := "TRANCHE_DEVICE_" + strings.ToUpper(strings.ReplaceAll(d.Key(), "-", "_")) + "=" + describe(d)
	if d.UUID != "" {
		env += " " + d.UUID
	}
	return both(edits, &cdispecs.ContainerEdits{Env: []string{env}})
}

// describe says what a device is: "gpu", "1g.10gb", "memory-share 2000Mi",
// "fraction-share 0.5".
func describe(d ledger.Device) string {
	p := d.Placement
	switch {
	case p.Share != nil && d.Amount == nil:
		return string(p.Share.By) + "-share"
	case p.Share != nil && p.Share.By == gpu.ByFraction:
		return fmt.Sprintf("fraction-share %v", float64(d.Amount.Fraction)/gpu.WholeFraction)
	case p.Share != nil:
		return fmt.Sprintf("memory-share %dMi", d.Amount.Memory/gpu.MiB)
	case p.Profile != "":
		return p.Profile
	}
	return string(p.Type)
}

// both are two edits in one, neither of which is changed.
func both(a, b *cdispecs.ContainerEdits) *cdispecs.ContainerEdits {
	out := *a
	out.Env = slices.Concat(a.Env, b.Env)
	out.DeviceNodes = slices.Concat(a.DeviceNodes, b.DeviceNodes)
	out.NetDevices = slices.Concat(a.NetDevices, b.NetDevices)
	out.Hooks = slices.Concat(a.Hooks, b.Hooks)
	out.Mounts = slices.Concat(a.Mounts, b.Mounts)
	out.AdditionalGIDs = slices.Concat(a.AdditionalGIDs, b.AdditionalGIDs)
	if b.IntelRdt != nil {
		out.IntelRdt = b.IntelRdt
	}
	return &out
}
