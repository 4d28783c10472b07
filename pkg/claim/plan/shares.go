package plan

import (
	"fmt"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

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
		if n := sharesOf(d.Request, s.Wanted.Devices); d.Placement.Share.OneClient && n > 1 {
			return fmt.Errorf("request %s asks for %d shares, and the settings of GPU %s (oneClient) allow one: ask for one, with the amount that is needed", d.Request, n, d.Placement.GPUName())
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
		if e.IsShare() && e.Amount != nil && e.Placement.SharesWith(d.Placement) {
			sum = plus(sum, *e.Amount)
		}
	}
	return sum
}
