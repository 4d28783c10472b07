package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// watchHealth takes a vendor's GPUs out of service as the driver reports errors.
func (p *plugin) watchHealth(ctx context.Context, o *drivers.Opened) {
	err := o.WatchHealth(ctx, func(e gpu.HealthEvent) {
		if !e.Fatal {
			p.events.Warn(ctx, v1alpha1.EventGPUError, e.Message)
			return
		}
		p.troubles.Add(ctx, e)
		for _, c := range p.gpus.Trouble(e.PCIAddress, p.troubles.Problem(e.PCIAddress)) {
			p.tellChange(ctx, c)
			p.publisher.Publish(ctx)
		}
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Errors of the GPUs are not watched, only looked for", "vendor", o.Name)
	}
}

// problems looks what is wrong with the GPUs that answer: fatal events that are
// not over, and what the driver asks to be done.
func (p *plugin) problems(ctx context.Context, answer []gpu.GPU) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	found := make([]error, len(answer))
	var wg sync.WaitGroup
	for i := range answer {
		wg.Go(func() { found[i] = p.hardware.CheckHealth(ctx, answer[i].PCIAddress) })
	}
	wg.Wait()
	problems := map[string]string{}
	for i, err := range found {
		if err != nil {
			problems[answer[i].PCIAddress] = err.Error()
		}
	}
	for _, e := range p.troubles.List() {
		if over, err := p.hardware.Recovered(ctx, e); over && err == nil {
			p.troubles.Over(ctx, e)
		}
	}
	for _, e := range p.troubles.List() {
		problems[e.PCIAddress] = p.troubles.Problem(e.PCIAddress)
	}
	return problems
}

// tellChange tells the node's admin that a GPU is out of service, and who is on
// it, or that it is back.
func (p *plugin) tellChange(ctx context.Context, c inventory.Change) {
	name := gpu.NameOf(c.PCIAddress)
	switch {
	case c.Device != "" && c.Problem == "":
		p.events.Note(ctx, v1alpha1.EventHeldDeviceReleased, fmt.Sprintf("%s of GPU %s, which the GPU did not have any more, is not held any more", c.Device, name))
		return
	case c.Device != "":
		p.events.Warn(ctx, v1alpha1.EventHeldDeviceGone, fmt.Sprintf("Nothing new is put on GPU %s as long as claims hold %s: %s; delete the pods of these claims%s", name, c.Device, c.Problem, p.heldBy(c.PCIAddress)))
		return
	}
	if c.Problem == "" {
		p.events.Note(ctx, v1alpha1.EventGPUHealthy, fmt.Sprintf("GPU %s is well again and is given out", name))
		return
	}
	p.events.Warn(ctx, v1alpha1.EventGPUUnhealthy, fmt.Sprintf("Nothing new is put on GPU %s: %s%s", name, c.Problem, p.heldBy(c.PCIAddress)))
}

// nameOf names a claim and its pods.
func nameOf(r *ledger.Record) string {
	text := "claim " + r.Claim.String()
	if len(r.Pods) > 0 {
		text += ", pod " + strings.Join(r.PodNames(), ", ")
	}
	return text
}

// holders names the claims and pods that hold devices, by device name; of one
// GPU, or of all if pciAddress is empty. Several claims can hold one device, if
// all but one have admin access, or if it is shared.
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

// partOf says how much of a share a claim has, and which daemon keeps it to that;
// empty for what is no share.
func (p *plugin) partOf(claim ledger.ClaimRef, d ledger.Device) string {
	if d.Placement.Share == nil || d.Amount == nil {
		return ""
	}
	amount := fmt.Sprintf("%d MiB", d.Amount.Memory>>20)
	if d.Amount.Fraction > 0 {
		amount = fraction(d.Amount.Fraction)
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
