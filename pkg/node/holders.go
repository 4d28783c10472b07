package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// isPartitioned reports whether claims hold partitions or shares of a GPU.
func (p *plugin) isPartitioned(pciAddress string) bool {
	return p.holdsOn(pciAddress, func(d *ledger.Device) bool { return d.Placement.Type != gpu.TypeGPU })
}

// isShared reports whether claims hold shares of a GPU.
func (p *plugin) isShared(pciAddress string) bool {
	return p.holdsOn(pciAddress, func(d *ledger.Device) bool { return d.IsShare() })
}

// heldOn names the devices of a GPU that claims hold, including those with admin access.
func (p *plugin) heldOn(pciAddress string) []string {
	var names []string
	for _, d := range p.devicesOn(pciAddress) {
		names = append(names, d.Name)
	}
	return names
}

// isOld reports whether claims hold devices of a GPU from another pool than the node's. Version
// 0.1 had a pool for each GPU.
func (p *plugin) isOld(pciAddress string) bool {
	return p.holdsOn(pciAddress, func(d *ledger.Device) bool { return d.Pool != names.PoolName(p.NodeName) })
}

// holdsOn reports whether a claim holds, without admin access, a device of a GPU for which what
// is true.
func (p *plugin) holdsOn(pciAddress string, what func(*ledger.Device) bool) bool {
	return slices.ContainsFunc(p.devicesOn(pciAddress), func(d ledger.Device) bool { return !d.Admin && what(&d) })
}

// devicesOn returns the devices of a GPU in the records of claims.
func (p *plugin) devicesOn(pciAddress string) []ledger.Device {
	return ledger.DevicesOn(p.claims.Ledger.On([]string{pciAddress}), pciAddress)
}

// heldShares returns the shares of a GPU in the records of claims, including those that another
// plugin on the node has prepared.
func (p *plugin) heldShares(ctx context.Context, pciAddress string) ([]gpu.Placement, error) {
	if err := p.claims.Refresh(ctx); err != nil {
		return nil, err
	}
	if err := p.claims.Ledger.CheckGPUs([]string{pciAddress}); err != nil {
		return nil, err
	}
	var held []gpu.Placement
	for _, d := range p.devicesOn(pciAddress) {
		if d.IsShare() {
			held = append(held, d.Placement)
		}
	}
	return held, nil
}

// heldPlacements returns what claims hold, by GPU.
func (p *plugin) heldPlacements() map[string][]gpu.Placement {
	held := map[string][]gpu.Placement{}
	for _, r := range claim.InUse(p.claims.Ledger.List()) {
		for _, d := range r.Devices {
			if !d.Admin {
				held[d.Placement.GPU] = append(held[d.Placement.GPU], d.Placement)
			}
		}
	}
	return held
}

// holdingClaims lists the claims that hold devices, including those whose records cannot be used
// now.
func (p *plugin) holdingClaims() []ledger.ClaimRef {
	var claims []ledger.ClaimRef
	for _, r := range claim.InUse(p.claims.Ledger.List()) {
		claims = append(claims, r.Claim)
	}
	for _, n := range p.claims.Ledger.Unusable() {
		claims = append(claims, n.Claim)
	}
	return claims
}

// isHeld reports whether a prepared claim holds a device of the GPU. A claim that is still being
// prepared does not count: an obstacle for it is also one for other claims.
func (p *plugin) isHeld(pciAddress string) bool {
	for _, r := range p.claims.Ledger.On([]string{pciAddress}) {
		if r.State == ledger.Prepared && slices.ContainsFunc(r.Devices, func(d ledger.Device) bool {
			return !d.Admin && d.Placement.GPU == pciAddress
		}) {
			return true
		}
	}
	return false
}

// isWhole reports whether programs can use a GPU as a whole.
func (p *plugin) isWhole(ctx context.Context, pciAddress string) (bool, error) {
	driver, err := p.hardware.Of(pciAddress)
	if err != nil {
		return false, err
	}
	modes, err := driver.Modes(ctx, pciAddress)
	return modes.MIG != gpu.MIGOn, err
}

// nameOf names a claim and its pods.
func nameOf(r *ledger.Record) string {
	text := "claim " + r.Claim.String()
	if len(r.Pods) > 0 {
		text += ", pod " + strings.Join(r.PodNames(), ", ")
	}
	return text
}

// holders names the claims and pods that hold devices, by device name; of one GPU, or of all if
// pciAddress is empty. Several claims can hold one device if it is shared, or if all but one
// have admin access.
func (p *plugin) holders(pciAddress string) map[string]string {
	names := map[string][]string{}
	for _, r := range claim.InUse(p.claims.Ledger.List()) {
		for _, d := range r.Devices {
			text := nameOf(&r) + p.partOf(r.Claim, d)
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
func (p *plugin) partOf(claim ledger.ClaimRef, d ledger.Device) string {
	if d.Placement.Share == nil || d.Amount == nil {
		return ""
	}
	amount := fmt.Sprintf("%d MiB", d.Amount.Memory>>20)
	if d.Amount.Fraction > 0 {
		amount = fmt.Sprint(float64(d.Amount.Fraction) / gpu.WholeFraction)
	}
	if daemon := p.shares.Serves(claim, d); daemon != "" {
		amount += ", MPS daemon " + daemon
	}
	return " (" + amount + ")"
}

// heldBy lists the holders of a GPU, for the end of a message.
func (p *plugin) heldBy(pciAddress string) string {
	var text strings.Builder
	holders := p.holders(pciAddress)
	for _, device := range slices.Sorted(maps.Keys(holders)) {
		fmt.Fprintf(&text, "; %s is held by %s", device, holders[device])
	}
	return text.String()
}
