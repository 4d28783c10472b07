package plan

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Op is what a step does.
type Op string

// The steps of Prepare and Unprepare, in the order in which they are taken.
const (
	// OpIntent writes down what is about to be made.
	OpIntent Op = "intent"
	// OpCreate makes one device exist. Of a share that is what it is a share of.
	OpCreate Op = "create"
	// OpJoin gets one share ready, once all devices exist.
	OpJoin Op = "join"
	// OpWriteCDI tells the container runtime about the devices.
	OpWriteCDI Op = "cdi"
	// OpDone writes down that the claim is prepared.
	OpDone Op = "done"

	// OpRemoveCDI comes first when a claim is released, so that no container
	// can start with what is about to go.
	OpRemoveCDI Op = "remove-cdi"
	// OpLeave takes back what was set up for one share.
	OpLeave Op = "leave"
	// OpDestroy takes one partition apart. One that is shared goes with the last of
	// its holders.
	OpDestroy Op = "destroy"
	// OpForget drops the record.
	OpForget Op = "forget"
)

// Step is one thing to do. Steps are data, so that a test can list every point
// at which the driver may die.
type Step struct {
	Op Op
	// Device is the index of the device in the record, for OpCreate, OpJoin, OpLeave
	// and OpDestroy.
	Device int
}

// Situation is everything that a plan is made from.
type Situation struct {
	// Wanted is the record as it should be when the claim is prepared.
	Wanted ledger.Record
	// Held is what is still true of what the ledger says of the claim, nil if nothing is.
	Held *ledger.Record
	// Others are the records of all other claims.
	Others []ledger.Record
	// Sharers are those of them, and of their devices, that are still true: who else
	// has a share.
	Sharers []ledger.Record
	// GPUs are the GPUs of the wanted devices, by PCI address.
	GPUs map[string]*gpu.GPU
	// Live is what exists on those GPUs.
	Live map[string][]gpu.Partition
	// CDI tells whether the claim's CDI file is there.
	CDI bool
	// CanShare tells whether there is somebody to set up shares.
	CanShare bool
	// Static tells whether the partition at a placement is there whatever claims do;
	// nil: none is.
	Static func(gpu.Placement) bool
}

// Prepare lists the steps that are left until the claim is prepared, none
// if it is.
func Prepare(s Situation) ([]Step, error) {
	for _, check := range []func(Situation) error{checkItself, checkShares, checkHolders, checkAmounts, checkForeign} {
		if err := check(s); err != nil {
			return nil, err
		}
	}
	if isPrepared(s) {
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

// checkItself refuses devices of one claim that exclude each other. The hardware
// would refuse most of them, but a GPU that is first given out whole and then
// cut for the same claim is a device on which nothing runs.
func checkItself(s Situation) error {
	for i, d := range s.Wanted.Devices {
		for _, e := range s.Wanted.Devices[:i] {
			if d.Admin || e.Admin || d.Placement.GPU != e.Placement.GPU {
				continue
			}
			if s.GPUs[d.Placement.GPU].Conflict(d.Placement, e.Placement) {
				return fmt.Errorf("the claim was given %s and %s, which cannot exist at the same time; delete the pod so that it is scheduled again", e.Name, d.Name)
			}
		}
	}
	return nil
}

// checkHolders is the last line of defence against using a piece of a GPU
// twice. It counts as the scheduler does, from the ledger instead of the API.
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
						return fmt.Sprintf("%s cannot be given out: %s still holds %s on the same GPU and its release is not finished; this is tried again",
							d.Name, holder, theirs.Name)
					})
				}
			}
		}
	}
	return nil
}

// checkForeign refuses to work around partitions that we did not make: they
// are somebody's, and what they cover cannot be given out.
func checkForeign(s Situation) error {
	for _, d := range s.Wanted.Devices {
		if d.Admin {
			continue
		}
		for _, part := range s.Live[d.Placement.GPU] {
			if part.Type.FollowsMode() || !part.Overlaps(d.Placement) || madeFor(part, s.Held) {
				continue
			}
			if d.IsShare() && part.Is(d.Placement) && RecordOf(part, s.Sharers) != nil {
				continue // who holds it beside us was looked at already
			}
			if IsStatic(s.Static, part) {
				if part.Is(d.Placement) {
					continue // it is there for whoever is given it
				}
				return fmt.Errorf("%s cannot be given out: the profile of the node keeps GPU %s cut, and %s is in its place; delete the pod so that it is scheduled again",
					d.Name, d.Placement.GPUName(), part.Name())
			}
			if owner := RecordOf(part, s.Others); owner != nil {
				return conflict(s.Wanted, []ledger.Record{*owner}, func(holder string) string {
					return fmt.Sprintf("%s cannot be given out: partition %s of %s is still there; this is tried again", d.Name, part.Name(), holder)
				})
			}
			return fmt.Errorf("%s cannot be given out: GPU %s holds partition %s (%s) that Tranche did not make; whoever made it must remove it",
				d.Name, d.Placement.GPUName(), part.Name(), part.ID)
		}
	}
	return nil
}

// RecordOf is the record whose partition it is, nil: none of them.
func RecordOf(part gpu.Partition, records []ledger.Record) *ledger.Record {
	for i := range records {
		if madeFor(part, &records[i]) {
			return &records[i]
		}
	}
	return nil
}

// IsStatic tells whether a partition is there whatever claims do.
func IsStatic(static func(gpu.Placement) bool, part gpu.Partition) bool {
	return static != nil && static(gpu.Placement{GPU: part.GPU, Type: part.Type, Profile: part.Profile, Start: part.Start, Size: part.Size})
}

// Ours tells whether the device is a partition that Tranche made: for its claim, or
// before it because it was static then.
func Ours(d ledger.Device) bool { return !d.Admin && d.Placement.Base().Type == gpu.TypeMIG }

// madeFor tells whether the partition is what the record says was handed out to its
// claim. A UUID that is known must match: after a driver reload, somebody else
// may have put a partition at the same place.
func madeFor(part gpu.Partition, r *ledger.Record) bool {
	if r == nil {
		return false
	}
	for _, d := range r.Devices {
		if !Ours(d) || !part.Is(d.Placement) {
			continue
		}
		if d.UUID == "" || !part.Complete || part.UUID == d.UUID {
			return true
		}
	}
	return false
}

// isPrepared tells whether nothing is left to do: the record is complete, it is
// of the same devices, and the partitions and the CDI file are still there.
func isPrepared(s Situation) bool {
	return s.Held != nil && s.Held.State == ledger.Prepared && s.CDI && SameDevices(*s.Held, s.Wanted) && allExist(s)
}

// allExist tells whether the hardware still has everything that was handed out
// to the claim.
func allExist(s Situation) bool {
	for _, d := range s.Held.Devices {
		if !d.Admin && !Exists(d, s.Live[d.Placement.GPU]) {
			return false
		}
	}
	return true
}

// Exists tells whether a GPU still has what was handed out. A whole GPU is
// there as long as nothing is cut from it.
func Exists(d ledger.Device, live []gpu.Partition) bool {
	if d.Placement.Base().Type == gpu.TypeGPU {
		return len(live) == 0
	}
	return slices.ContainsFunc(live, func(p gpu.Partition) bool {
		return p.Is(d.Placement) && p.Complete && p.UUID == d.UUID
	})
}

// SameDevices tells whether two records are of the same devices, for the same requests.
func SameDevices(a, b ledger.Record) bool {
	return slices.EqualFunc(a.Devices, b.Devices, func(x, y ledger.Device) bool {
		return x.Request == y.Request && x.Pool == y.Pool && x.Name == y.Name && x.Admin == y.Admin && x.ShareID == y.ShareID
	})
}

// Release lists the steps that undo a record. Only partitions that are
// still the ones that we made, and of which no other record has a share, are
// destroyed, and none that is static; live has those of the GPUs whose driver has
// not been loaded anew since, sharers what is still true of the other records.
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
