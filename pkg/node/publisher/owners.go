package publisher

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/text"
)

// SetOwners sets which other systems serve the GPUs. Nothing is published before.
func (p *Publisher) SetOwners(ctx context.Context, all inventory.Owners) {
	p.mu.Lock()
	same := p.known && slices.Equal(p.owners, all)
	p.owners, p.known = all, true
	p.mu.Unlock()
	if !same {
		p.Publish(ctx)
	}
}

// unmanaged reports whether nothing is published because Tranche does not manage the node. While
// claims hold GPUs, these stay published with a taint. The caller holds the lock.
func (p *Publisher) unmanaged() bool {
	return len(p.owners.Unmanaged()) > 0 && !slices.ContainsFunc(p.GPUs.List(), func(g inventory.GPU) bool {
		return len(p.heldOn(g.PCIAddress)) > 0
	})
}

// reportOwners reports changes of the other systems that serve the node's GPUs. The caller holds
// the lock.
func (p *Publisher) reportOwners(ctx context.Context, known []inventory.GPU) {
	told := map[gpu.Vendor]string{}
	for i := range known {
		told[known[i].Vendor] = ""
	}
	for v := range told {
		for _, o := range p.ownersOf(v, known) {
			told[v] += o.Name + " " + o.PCIAddress + "\n"
		}
	}
	for _, v := range slices.Sorted(maps.Keys(told)) {
		switch told[v] {
		case p.reportedOwners[v]: // reported before
		case "":
			p.Events.Note(ctx, names.EventOtherSystemGone, fmt.Sprintf("No other system keeps Tranche from the %s GPUs of this node any more, so Tranche publishes them", v.Title()))
		default:
			for _, o := range p.ownersOf(v, known) {
				text := fmt.Sprintf("Tranche does not offer %s of this node, because %s. To let Tranche have them, %s", served(v, o), o.Found, o.Remedy)
				if len(inventory.Owners{o}.Unmanaged()) == 0 {
					text += "; to publish them in spite of that, set ignoreOtherSystems=true in the chart"
				}
				p.Events.Warn(ctx, names.EventOtherSystem, text)
			}
		}
	}
	p.reportedOwners = told
}

// served names the GPUs of a vendor that another system serves.
func served(v gpu.Vendor, o inventory.Owner) string {
	if o.PCIAddress != "" {
		return fmt.Sprintf("%s GPU %s", v.Title(), o.PCIAddress)
	}
	return fmt.Sprintf("the %s GPUs", v.Title())
}

// ownersOf returns the other systems that serve any of the known GPUs of a vendor.
func (p *Publisher) ownersOf(v gpu.Vendor, known []inventory.GPU) inventory.Owners {
	return slices.DeleteFunc(slices.Clone(p.owners), func(o inventory.Owner) bool {
		return !slices.ContainsFunc(known, func(g inventory.GPU) bool {
			return g.Vendor == v && (o.Vendor == v || o.PCIAddress == g.PCIAddress)
		})
	})
}

// OwnersFound returns the other systems that serve GPUs of the node, each once: how it was detected,
// and how to end that.
func (p *Publisher) OwnersFound() []v1beta1.OtherSystem {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.GPUs.List()
	vendors := map[gpu.Vendor]bool{}
	for i := range known {
		vendors[known[i].Vendor] = true
	}
	var found []v1beta1.OtherSystem
	for _, v := range slices.Sorted(maps.Keys(vendors)) {
		for _, o := range p.ownersOf(v, known) {
			message := fmt.Sprintf("%s; to let Tranche have %s, %s", o.Found, served(v, o), o.Remedy)
			i := slices.IndexFunc(found, func(s v1beta1.OtherSystem) bool { return s.Name == o.Name })
			if i < 0 { // Otherwise it serves GPUs of several vendors, or several GPUs.
				i, found = len(found), append(found, v1beta1.OtherSystem{Name: o.Name})
			} else {
				message = found[i].Message + "; " + message
			}
			found[i].Message = text.Cut(message, v1beta1.MaxListedText)
		}
	}
	return found[:min(len(found), v1beta1.MaxOtherSystems)]
}
