package plan

import (
	"fmt"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// SameBase tells whether two devices are shares of one piece of a GPU.
func SameBase(d, e ledger.Device) bool {
	return d.IsShare() && e.IsShare() && d.Placement.GPU == e.Placement.GPU && d.Placement.Base().Name() == e.Placement.Base().Name()
}

// HeldByOthers tells whether other claims have shares of what a device is a share
// of. The last of them to go takes the partition with it.
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

// checkShares refuses shares that this driver cannot set up, and shares of one
// claim that are together more than their device. The scheduler does not give
// them, so it would be no use to wait.
func checkShares(s Situation) error {
	for i, d := range s.Wanted.Devices {
		if !d.IsShare() {
			continue
		}
		if !s.CanShare {
			return fmt.Errorf("%s is a share, and this plugin was started without what sets shares up; restart it with sharing, or delete the pod so that it is scheduled again", d.Name)
		}
		if what := over(d.Placement, sumOf(d, s.Wanted.Devices[:i+1])); what != "" {
			return fmt.Errorf("the claim was given more of %s than all of its %s; delete the pod so that it is scheduled again", d.Name, what)
		}
		if n := sharesOf(d.Request, s.Wanted.Devices); d.Placement.Share.OneClient && n > 1 {
			return fmt.Errorf("request %s asks for %d shares, and the settings of GPU %s (oneClient) allow one: ask for one, with the amount that is needed", d.Request, n, d.Placement.GPUName())
		}
	}
	return nil
}

// sharesOf counts the shares that a request was given.
func sharesOf(request string, devices []ledger.Device) int {
	n := 0
	for _, d := range devices {
		if d.IsShare() && d.Request == request {
			n++
		}
	}
	return n
}

// checkAmounts counts what is taken of the share devices that the claim was given,
// as the scheduler does.
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
				return fmt.Sprintf("%s cannot be given out: not enough of its %s is left beside what is held by %s, and a release is not finished; this is tried again",
					d.Name, what, holders)
			})
		}
	}
	return nil
}

// sumOf is what some devices have together of the device that one is a share of.
func sumOf(d ledger.Device, devices []ledger.Device) gpu.Amount {
	var sum gpu.Amount
	for _, e := range devices {
		if e.IsShare() && e.Amount != nil && e.Placement.SharesWith(d.Placement) {
			sum = plus(sum, *e.Amount)
		}
	}
	return sum
}
