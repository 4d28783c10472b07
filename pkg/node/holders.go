package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// heldShares returns the shares of a GPU in the records of claims, including those that another
// plugin on the node has prepared.
func (c *claims) heldShares(ctx context.Context, pciAddress string) ([]gpu.Placement, error) {
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	if err := c.records.CheckGPUs([]string{pciAddress}); err != nil {
		return nil, err
	}
	var held []gpu.Placement
	for _, d := range c.records.DevicesOn(pciAddress) {
		if d.IsShare() {
			held = append(held, d.Placement)
		}
	}
	return held, nil
}

// holdingClaims lists the claims that hold devices, including those whose records cannot be used
// now.
func (c *claims) holdingClaims() []ledger.ClaimRef {
	all := lists.Map(ledger.InUse(c.records.List()), func(r ledger.Record) ledger.ClaimRef { return r.Claim })
	for _, n := range c.records.Unusable() {
		all = append(all, n.Claim)
	}
	return all
}

// isHeld reports whether a prepared claim holds a device of the GPU. A claim that is still being
// prepared does not count: an obstacle for it is also one for other claims.
func (c *claims) isHeld(pciAddress string) bool {
	for _, r := range c.records.On([]string{pciAddress}) {
		if r.State == ledger.Prepared && slices.ContainsFunc(r.Devices, func(d ledger.Device) bool {
			return !d.Admin && d.Placement.GPU == pciAddress
		}) {
			return true
		}
	}
	return false
}

// nameOf names a claim and its pods.
func nameOf(r *ledger.Record) string {
	text := "claim " + r.Claim.String()
	if pods := r.PodNames(); len(pods) > 0 {
		text += ", pod " + strings.Join(pods, ", ")
	}
	return text
}

// holders names the claims and pods that hold devices, by device name; of one GPU, or of all if
// pciAddress is empty. Several claims can hold one device if it is shared, or if all but one
// have admin access.
func (c *claims) holders(pciAddress string) map[string]string {
	names := map[string][]string{}
	for _, r := range ledger.InUse(c.records.List()) {
		for _, d := range r.Devices {
			text := nameOf(&r) + c.partOf(r.Claim, d)
			// A claim may have a device for two requests.
			if (pciAddress == "" || d.Placement.GPU == pciAddress) && !slices.Contains(names[d.Name], text) {
				names[d.Name] = append(names[d.Name], text)
			}
		}
	}
	holders := map[string]string{}
	for device, all := range names {
		holders[device] = strings.Join(all, "; ")
	}
	return holders
}

// partOf describes a claim's part of a share, and the MPS daemon that enforces it; empty for a
// device that is not a share.
func (c *claims) partOf(of ledger.ClaimRef, d ledger.Device) string {
	if !d.IsShare() {
		return ""
	}
	amount := fmt.Sprintf("%d MiB", d.Amount.Memory>>20)
	if d.Amount.Fraction > 0 {
		amount = fmt.Sprint(float64(d.Amount.Fraction) / gpu.WholeFraction)
	}
	if d.MemoryLimit > 0 {
		amount += fmt.Sprintf(", limit %d MiB", d.MemoryLimit/gpu.MiB)
	}
	if daemon := c.shares.Serves(of, d); daemon != "" {
		amount += ", MPS daemon " + daemon
	}
	return " (" + amount + ")"
}

// heldBy lists the holders of a GPU, for the end of a message.
func (c *claims) heldBy(pciAddress string) string {
	var text strings.Builder
	holders := c.holders(pciAddress)
	for _, device := range slices.Sorted(maps.Keys(holders)) {
		fmt.Fprintf(&text, "; %s is held by %s", device, holders[device])
	}
	return text.String()
}
