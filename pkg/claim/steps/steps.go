package steps

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Op is what a step does.
type Op string

// The steps of Prepare and Unprepare, in order.
const (
	// OpIntent writes the record with state Preparing.
	OpIntent Op = "intent"
	// OpCreate creates one device; for a share, the device that it is a share of.
	OpCreate Op = "create"
	// OpJoin sets up one share, after all devices exist.
	OpJoin Op = "join"
	// OpWriteCDI writes the claim's CDI file.
	OpWriteCDI Op = "cdi"
	// OpDone writes the record with state Prepared.
	OpDone Op = "done"

	// OpRemoveCDI is the first step of a release, so that no container can start with the
	// devices.
	OpRemoveCDI Op = "remove-cdi"
	// OpLeave releases one share.
	OpLeave Op = "leave"
	// OpDestroy destroys one partition. The last claim that shares it does so.
	OpDestroy Op = "destroy"
	// OpForget deletes the record.
	OpForget Op = "forget"
)

// Step is one step. Steps are data, so that tests can stop the plugin before each of
// them.
type Step struct {
	Op Op
	// Device is the index of the device in the record, for OpCreate, OpJoin, OpLeave
	// and OpDestroy.
	Device int
}

// Situation is everything that the steps are computed from.
type Situation struct {
	// Wanted is the record that the claim should have.
	Wanted ledger.Record
	// Held is the claim's record with its current devices: those prepared since their
	// driver was loaded. Nil if there are none.
	Held *ledger.Record
	// Others are the records of all other claims on the GPUs.
	Others []ledger.Record
	// Sharers are those of Others that are not released, with their current devices.
	Sharers []ledger.Record
	// GPUs are the GPUs of the wanted devices, by PCI address.
	GPUs map[string]*gpu.GPU
	// Live are the partitions that exist on the GPUs.
	Live map[string][]gpu.Partition
	// CDI: the claim's CDI file exists.
	CDI bool
	// CanShare: the plugin can set up shares.
	CanShare bool
	// Static reports whether a profile keeps a partition at a placement. May be nil.
	Static func(gpu.Placement) bool
}

// Continue takes over from the claim's record what stays: its shares, because they are set up, or
// partly set up, as recorded, and the marks of devices that containers may be using, because an
// earlier Prepare succeeded and they still exist. The marks are written with the intent, so that they
// survive this process. Held must be the record with its current devices; nil: there is none.
func Continue(held *ledger.Record, wanted ledger.Record, live map[string][]gpu.Partition) {
	if held == nil {
		return
	}
	same := SameDevices(*held, wanted)
	for i := range wanted.Devices {
		d := &wanted.Devices[i]
		if same && held.Devices[i].IsShare() {
			e := held.Devices[i]
			d.Placement, d.Amount, d.MemoryLimit, d.Before = e.Placement, e.Amount, e.MemoryLimit, e.Before
		}
		for _, e := range held.Devices {
			if e.Request == d.Request && e.Key() == d.Key() && held.WasHandedOut(e) && (e.Admin || Exists(e, live[e.Placement.GPU])) {
				d.HandedOut, d.UUID = true, e.UUID
			}
		}
	}
}

// Prepare lists the remaining steps until the claim is prepared; none if it is.
func Prepare(s Situation) ([]Step, error) {
	for _, check := range []func(Situation) error{checkItself, checkShares, checkHolders, checkAmounts, checkForeign} {
		if err := check(s); err != nil {
			return nil, err
		}
	}
	if PreparedOnPaper(s) && allExist(s) {
		return nil, nil
	}
	var steps []Step
	if s.Held == nil || s.Held.Released || !SameDevices(*s.Held, s.Wanted) || (s.Held.State == ledger.Prepared && !allExist(s)) {
		steps = append(steps, Step{Op: OpIntent})
	}
	for i, d := range s.Wanted.Devices {
		if !d.Admin {
			steps = append(steps, Step{Op: OpCreate, Device: i})
		}
	}
	for i, d := range s.Wanted.Devices {
		if d.IsShare() {
			steps = append(steps, Step{Op: OpJoin, Device: i})
		}
	}
	return append(steps, Step{Op: OpWriteCDI}, Step{Op: OpDone}), nil
}

// checkItself refuses devices of one claim that exclude each other. The hardware would refuse
// most of them, but not to partition a GPU that the claim also has as a whole.
func checkItself(s Situation) error {
	for i, d := range s.Wanted.Devices {
		for _, e := range s.Wanted.Devices[:i] {
			if d.Admin || e.Admin || d.Placement.GPU != e.Placement.GPU {
				continue
			}
			if s.GPUs[d.Placement.GPU].Conflict(d.Placement, e.Placement) {
				return fmt.Errorf("the claim was allocated %s and %s, which cannot exist at the same time; delete the pod so that it is scheduled again", e.Name, d.Name)
			}
		}
	}
	return nil
}

// checkHolders refuses devices that conflict with those of other claims. It counts like the
// scheduler, but with the ledger instead of the API.
func checkHolders(s Situation) error {
	for _, d := range s.Wanted.Devices {
		if d.Admin {
			continue
		}
		for _, other := range s.Others {
			for _, theirs := range other.Devices {
				if theirs.Admin || theirs.Placement.GPU != d.Placement.GPU {
					continue
				}
				if s.GPUs[d.Placement.GPU].Conflict(d.Placement, theirs.Placement) {
					return conflict(s.Wanted, []ledger.Record{other}, func(holder string) string {
						return fmt.Sprintf("%s cannot be prepared: %s", d.Name, whyHeld(other, theirs.Name, holder))
					})
				}
			}
		}
	}
	return nil
}

// whyHeld says why the device of another claim is in the way, and what to do.
func whyHeld(other ledger.Record, device, holder string) string {
	if other.Released {
		return fmt.Sprintf("%s of %s, which was released, could not be removed from the GPU: %s; this is retried, or delete the pod so that it is scheduled again; if it lasts, the node must be drained and rebooted",
			device, holder, other.Cause)
	}
	return fmt.Sprintf("%s still holds %s on the same GPU and its release is not finished; this is retried", holder, device)
}

// checkForeign refuses devices that overlap partitions of others.
func checkForeign(s Situation) error {
	for _, d := range s.Wanted.Devices {
		if d.Admin {
			continue
		}
		for _, part := range s.Live[d.Placement.GPU] {
			if part.Type != gpu.TypeMIG || !part.Overlaps(d.Placement) || madeFor(part, s.Held) {
				continue
			}
			if d.IsShare() && part.Is(d.Placement) && RecordOf(part, s.Sharers) != nil {
				continue // checkHolders and checkAmounts have checked the other claims
			}
			if IsStatic(s.Static, part) {
				if part.Is(d.Placement) {
					continue // the profile keeps it for claims
				}
				return fmt.Errorf("%s cannot be prepared: the profile of the node keeps partition %s on GPU %s in its place; delete the pod so that it is scheduled again",
					d.Name, part.Name(), d.Placement.GPUName())
			}
			if owner := RecordOf(part, s.Others); owner != nil {
				return conflict(s.Wanted, []ledger.Record{*owner}, func(holder string) string {
					return fmt.Sprintf("%s cannot be prepared: partition %s of %s is still there; this is retried", d.Name, part.Name(), holder)
				})
			}
			return fmt.Errorf("%s cannot be prepared: GPU %s holds partition %s (%s) that Tranche did not make; whoever made it must remove it",
				d.Name, d.Placement.GPUName(), part.Name(), part.ID)
		}
	}
	return nil
}

// RecordOf returns the record that a partition was created for; nil if there is none.
func RecordOf(part gpu.Partition, records []ledger.Record) *ledger.Record {
	return lists.Find(records, func(r *ledger.Record) bool { return madeFor(part, r) })
}

// IsStatic reports whether a profile keeps a partition.
func IsStatic(static func(gpu.Placement) bool, part gpu.Partition) bool {
	return static != nil && static(part.Placement())
}

// Ours reports whether the device is a partition that Tranche made: for its claim, or
// before it because it was static then.
func Ours(d ledger.Device) bool { return d.Placement.Base().Type == gpu.TypeMIG }

// madeFor reports whether the partition is what the record says was handed out to its
// claim. A UUID that is known must match: after a driver reload, somebody else
// may have put a partition at the same place.
func madeFor(part gpu.Partition, r *ledger.Record) bool {
	if r == nil {
		return false
	}
	for _, d := range r.Devices {
		if part.Is(d.Placement) && (d.UUID == "" || !part.Complete || part.UUID == d.UUID) {
			return true
		}
	}
	return false
}

// PreparedOnPaper reports whether a claim is prepared according to its record, which is complete and
// has the same devices, and to its CDI file. The partitions may be gone.
func PreparedOnPaper(s Situation) bool {
	return s.Held != nil && s.Held.State == ledger.Prepared && s.CDI && SameDevices(*s.Held, s.Wanted)
}

// allExist reports whether the hardware still has all devices of the claim.
func allExist(s Situation) bool {
	for _, d := range s.Held.Devices {
		if !d.Admin && !Exists(d, s.Live[d.Placement.GPU]) {
			return false
		}
	}
	return true
}

// Exists reports whether a GPU still has a device. A whole GPU exists as long as the GPU has no
// partitions and is not listed as an incomplete one.
func Exists(d ledger.Device, live []gpu.Partition) bool {
	if d.Placement.Base().Type == gpu.TypeGPU {
		return len(live) == 0
	}
	return slices.ContainsFunc(live, func(p gpu.Partition) bool {
		return p.Is(d.Placement) && p.Complete && p.UUID == d.UUID
	})
}

// SameDevices reports whether two records have the same devices for the same requests.
func SameDevices(a, b ledger.Record) bool {
	return slices.EqualFunc(a.Devices, b.Devices, func(x, y ledger.Device) bool {
		return x.Request == y.Request && x.Pool == y.Pool && x.Name == y.Name && x.Admin == y.Admin && x.ShareID == y.ShareID
	})
}

// Release lists the steps that release a record. It destroys only partitions that were created
// for the record, that no other record shares, and that are not static. live has the partitions
// of the GPUs whose driver was not reloaded since; sharers are the current records of other
// claims.
func Release(r ledger.Record, live map[string][]gpu.Partition, sharers []ledger.Record, static func(gpu.Placement) bool) []Step {
	steps := []Step{{Op: OpRemoveCDI}}
	for i, d := range slices.Backward(r.Devices) {
		if d.IsShare() {
			steps = append(steps, Step{Op: OpLeave, Device: i})
		}
	}
	for i, d := range slices.Backward(r.Devices) {
		goes := func(p gpu.Partition) bool { return p.Is(d.Placement) && madeFor(p, &r) && !IsStatic(static, p) }
		// Of two shares of one partition, the first one destroys it.
		again := slices.ContainsFunc(r.Devices[:i], func(e ledger.Device) bool { return SameBase(d, e) })
		if Ours(d) && !again && !HeldByOthers(d, sharers) && slices.ContainsFunc(live[d.Placement.GPU], goes) {
			steps = append(steps, Step{Op: OpDestroy, Device: i})
		}
	}
	return append(steps, Step{Op: OpForget})
}

// SameBase reports whether two devices are shares of the same GPU or partition.
func SameBase(d, e ledger.Device) bool {
	return d.IsShare() && e.IsShare() && d.Placement.GPU == e.Placement.GPU && d.Placement.Base().Name() == e.Placement.Base().Name()
}

// HeldByOthers reports whether other claims have shares of the same GPU or partition.
func HeldByOthers(d ledger.Device, others []ledger.Record) bool {
	for _, other := range others {
		for _, e := range other.Devices {
			if SameBase(d, e) {
				return true
			}
		}
	}
	return false
}

// checkShares refuses shares that the plugin cannot set up, and shares of one claim that exceed
// their device. The scheduler does not allocate these, so a retry would not help.
func checkShares(s Situation) error {
	for i, d := range s.Wanted.Devices {
		if !d.IsShare() {
			continue
		}
		if !s.CanShare {
			return fmt.Errorf("%s is a share, and this plugin was started without sharing; restart it with sharing, or delete the pod so that it is scheduled again", d.Name)
		}
		if what := over(d.Placement, sumOf(d, s.Wanted.Devices[:i+1])); what != "" {
			return fmt.Errorf("the claim was allocated more of %s than all of its %s; delete the pod so that it is scheduled again", d.Name, what)
		}
		if n := sharesOf(d.Request, s.Wanted.Devices); d.Placement.Share.FailRequestsGreaterThanOne && n > 1 {
			return fmt.Errorf("request %s asks for %d shares, and the settings of GPU %s (failRequestsGreaterThanOne) allow one: ask for one, with the amount that is needed", d.Request, n, d.Placement.GPUName())
		}
	}
	return nil
}

// sharesOf counts the shares of a request.
func sharesOf(request string, devices []ledger.Device) int {
	n := 0
	for _, d := range devices {
		if d.IsShare() && d.Request == request {
			n++
		}
	}
	return n
}

// checkAmounts refuses shares that exceed their device together with those of other claims. It
// counts like the scheduler.
func checkAmounts(s Situation) error {
	for _, d := range s.Wanted.Devices {
		if !d.IsShare() {
			continue
		}
		sum := sumOf(d, s.Wanted.Devices)
		var holders []ledger.Record
		for _, other := range s.Others {
			theirs := sumOf(d, other.Devices)
			if theirs == (gpu.Amount{}) {
				continue
			}
			sum = plus(sum, theirs)
			holders = append(holders, other)
		}
		if what := over(d.Placement, sum); what != "" {
			return conflict(s.Wanted, holders, func(holders string) string {
				return fmt.Sprintf("%s cannot be prepared: not enough of its %s is left, because of %s, whose release is not finished; this is retried",
					d.Name, what, holders)
			})
		}
	}
	return nil
}

// sumOf adds up the amounts of those devices that are shares of the same device as d.
func sumOf(d ledger.Device, devices []ledger.Device) gpu.Amount {
	var sum gpu.Amount
	for _, e := range devices {
		if e.IsShare() && e.Placement.SharesWith(d.Placement) {
			sum = plus(sum, *e.Amount)
		}
	}
	return sum
}
