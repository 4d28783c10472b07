package claim

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

// situation is everything that a plan is made from.
type situation struct {
	// wanted is the record as it should be when the claim is prepared.
	wanted ledger.Record
	// before is what the ledger says of the claim, nil if nothing. held is what is
	// still true of that, nil if nothing is.
	before, held *ledger.Record
	// others are the records of all other claims.
	others []ledger.Record
	// sharers are those of them, and of their devices, that are still true: who else
	// has a share.
	sharers []ledger.Record
	// gpus are the GPUs of the wanted devices, by PCI address.
	gpus map[string]*gpu.GPU
	// live is what exists on those GPUs.
	live map[string][]gpu.Partition
	// cdi tells whether the claim's CDI file is there.
	cdi bool
	// canShare tells whether there is somebody to set up shares.
	canShare bool
	// static tells whether the partition at a placement is there whatever claims do;
	// nil: none is.
	static func(gpu.Placement) bool
}

// planPrepare lists the steps that are left until the claim is prepared, none
// if it is.
func planPrepare(s situation) ([]Step, error) {
	for _, check := range []func(situation) error{checkItself, checkShares, checkHolders, checkAmounts, checkForeign} {
		if err := check(s); err != nil {
			return nil, err
		}
	}
	if isPrepared(s) {
		return nil, nil
	}
	var steps []Step
	if s.held == nil || s.held.Released || !sameDevices(*s.held, s.wanted) || (s.held.State == ledger.Prepared && !allExist(s)) {
		steps = append(steps, Step{Op: OpIntent})
	}
	for i, d := range s.wanted.Devices {
		if !d.Admin {
			steps = append(steps, Step{Op: OpCreate, Device: i})
		}
	}
	for i, d := range s.wanted.Devices {
		if d.IsShare() {
			steps = append(steps, Step{Op: OpJoin, Device: i})
		}
	}
	return append(steps, Step{Op: OpWriteCDI}, Step{Op: OpDone}), nil
}

// checkItself refuses devices of one claim that exclude each other. The hardware
// would refuse most of them, but a GPU that is first given out whole and then
// cut for the same claim is a device on which nothing runs.
func checkItself(s situation) error {
	for i, d := range s.wanted.Devices {
		for _, e := range s.wanted.Devices[:i] {
			if d.Admin || e.Admin || d.Placement.GPU != e.Placement.GPU {
				continue
			}
			if s.gpus[d.Placement.GPU].Conflict(d.Placement, e.Placement) {
				return fmt.Errorf("the claim was given %s and %s, which cannot exist at the same time; delete the pod so that it is scheduled again", e.Name, d.Name)
			}
		}
	}
	return nil
}

// checkHolders is the last line of defence against using a piece of a GPU
// twice. It counts as the scheduler does, from the ledger instead of the API.
func checkHolders(s situation) error {
	for _, d := range s.wanted.Devices {
		if d.Admin {
			continue
		}
		for _, other := range s.others {
			for _, theirs := range other.Devices {
				if theirs.Admin || theirs.Placement.GPU != d.Placement.GPU {
					continue
				}
				if s.gpus[d.Placement.GPU].Conflict(d.Placement, theirs.Placement) {
					return conflict(s.wanted, []ledger.Record{other}, func(holder string) string {
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
func checkForeign(s situation) error {
	for _, d := range s.wanted.Devices {
		if d.Admin {
			continue
		}
		for _, part := range s.live[d.Placement.GPU] {
			if part.Type.FollowsMode() || !part.Overlaps(d.Placement) || madeFor(part, s.held) {
				continue
			}
			if d.IsShare() && part.Is(d.Placement) && recordOf(part, s.sharers) != nil {
				continue // who holds it beside us was looked at already
			}
			if isStatic(s.static, part) {
				if part.Is(d.Placement) {
					continue // it is there for whoever is given it
				}
				return fmt.Errorf("%s cannot be given out: the profile of the node keeps GPU %s cut, and %s is in its place; delete the pod so that it is scheduled again",
					d.Name, d.Placement.GPUName(), part.Name())
			}
			if owner := recordOf(part, s.others); owner != nil {
				return conflict(s.wanted, []ledger.Record{*owner}, func(holder string) string {
					return fmt.Sprintf("%s cannot be given out: partition %s of %s is still there; this is tried again", d.Name, part.Name(), holder)
				})
			}
			return fmt.Errorf("%s cannot be given out: GPU %s holds partition %s (%s) that Tranche did not make; whoever made it must remove it",
				d.Name, d.Placement.GPUName(), part.Name(), part.ID)
		}
	}
	return nil
}

func recordOf(part gpu.Partition, records []ledger.Record) *ledger.Record {
	for i := range records {
		if madeFor(part, &records[i]) {
			return &records[i]
		}
	}
	return nil
}

// isStatic tells whether a partition is there whatever claims do.
func isStatic(static func(gpu.Placement) bool, part gpu.Partition) bool {
	return static != nil && static(gpu.Placement{GPU: part.GPU, Type: part.Type, Profile: part.Profile, Start: part.Start, Size: part.Size})
}

// ours tells whether the device is a partition that Tranche made: for its claim, or
// before it because it was static then.
func ours(d ledger.Device) bool { return !d.Admin && d.Placement.Base().Type == gpu.TypeMIG }

// madeFor tells whether the partition is what the record says was handed out to its
// claim. A UUID that is known must match: after a driver reload, somebody else
// may have put a partition at the same place.
func madeFor(part gpu.Partition, r *ledger.Record) bool {
	if r == nil {
		return false
	}
	for _, d := range r.Devices {
		if !ours(d) || !part.Is(d.Placement) {
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
func isPrepared(s situation) bool {
	return s.held != nil && s.held.State == ledger.Prepared && s.cdi && sameDevices(*s.held, s.wanted) && allExist(s)
}

// allExist tells whether the hardware still has everything that was handed out
// to the claim.
func allExist(s situation) bool {
	for _, d := range s.held.Devices {
		if !d.Admin && !exists(d, s.live[d.Placement.GPU]) {
			return false
		}
	}
	return true
}

// exists tells whether a GPU still has what was handed out. A whole GPU is
// there as long as nothing is cut from it.
func exists(d ledger.Device, live []gpu.Partition) bool {
	if d.Placement.Base().Type == gpu.TypeGPU {
		return len(live) == 0
	}
	return slices.ContainsFunc(live, func(p gpu.Partition) bool {
		return p.Is(d.Placement) && p.Complete && p.UUID == d.UUID
	})
}

func sameDevices(a, b ledger.Record) bool {
	return slices.EqualFunc(a.Devices, b.Devices, func(x, y ledger.Device) bool {
		return x.Request == y.Request && x.Pool == y.Pool && x.Name == y.Name && x.Admin == y.Admin && x.ShareID == y.ShareID
	})
}

// planRelease lists the steps that undo a record. Only partitions that are
// still the ones that we made, and of which no other record has a share, are
// destroyed, and none that is static; live has those of the GPUs whose driver has
// not been loaded anew since, sharers what is still true of the other records.
func planRelease(r ledger.Record, live map[string][]gpu.Partition, sharers []ledger.Record, static func(gpu.Placement) bool) []Step {
	steps := []Step{{Op: OpRemoveCDI}}
	for i, d := range slices.Backward(r.Devices) {
		if d.IsShare() {
			steps = append(steps, Step{Op: OpLeave, Device: i})
		}
	}
	for i, d := range slices.Backward(r.Devices) {
		goes := func(p gpu.Partition) bool { return p.Is(d.Placement) && madeFor(p, &r) && !isStatic(static, p) }
		// Of two shares of one partition, the first one destroys it.
		again := slices.ContainsFunc(r.Devices[:i], func(e ledger.Device) bool { return sameBase(d, e) })
		if ours(d) && !again && !heldByOthers(d, sharers) && slices.ContainsFunc(live[d.Placement.GPU], goes) {
			steps = append(steps, Step{Op: OpDestroy, Device: i})
		}
	}
	return append(steps, Step{Op: OpForget})
}
