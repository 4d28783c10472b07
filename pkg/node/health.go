package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// troubles are the fatal events of the GPUs. They are kept in a file: the driver
// reports an error once, and a restart of the plugin does not repair a GPU. A GPU is
// unhealthy until each of its events is over, because they end in different ways.
type troubles struct {
	path string
	// mu protects the events and the file.
	mu     sync.Mutex
	events []gpu.HealthEvent
}

// openTroubles reads what an earlier run knew. A file that cannot be read is
// reported and left behind: what it knew is lost, but GPUs that are still in
// trouble mostly say so again.
func openTroubles(path string) (*troubles, error) {
	t := &troubles{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("read which GPUs were in trouble: %w", err)
	}
	if err := json.Unmarshal(data, &t.events); err != nil {
		return &troubles{path: path}, fmt.Errorf("read which GPUs were in trouble from %s: %w", path, err)
	}
	return t, nil
}

// sameTrouble tells whether two events end together. Of the same error the later
// event counts: a reset between the two did not help.
func sameTrouble(a, b gpu.HealthEvent) bool { return a.PCIAddress == b.PCIAddress && a.XID == b.XID }

// add takes in a fatal event.
func (t *troubles) add(ctx context.Context, e gpu.HealthEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.events, func(known gpu.HealthEvent) bool { return sameTrouble(known, e) })
	if i < 0 {
		t.events = append(t.events, e)
	} else {
		t.events[i] = e
	}
	t.save(ctx)
}

// over drops an event, unless the same error has come again meanwhile.
func (t *troubles) over(ctx context.Context, e gpu.HealthEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.events)
	t.events = slices.DeleteFunc(t.events, func(known gpu.HealthEvent) bool { return sameEvent(known, e) })
	if len(t.events) < before {
		t.save(ctx)
	}
}

func sameEvent(a, b gpu.HealthEvent) bool {
	return sameTrouble(a, b) && a.Message == b.Message && a.LoadID == b.LoadID && a.Energy == b.Energy
}

// save writes the file. If it cannot, the events are still in force in this run.
func (t *troubles) save(ctx context.Context) {
	data, err := json.Marshal(t.events)
	if err == nil {
		err = durable.WriteFile(t.path, data)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Which GPUs are in trouble could not be written down, and is forgotten if the plugin restarts", "file", t.path)
	}
}

// list returns the events that are not over, in the order in which they came.
func (t *troubles) list() []gpu.HealthEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}

// problem is what the events say about one GPU, empty if there are none.
func (t *troubles) problem(pciAddress string) string {
	var messages []string
	for _, e := range t.list() {
		if e.PCIAddress == pciAddress {
			messages = append(messages, e.Message)
		}
	}
	return strings.Join(messages, "; ")
}

// watchHealth takes a vendor's GPUs out of service as the driver reports errors.
func (p *plugin) watchHealth(ctx context.Context, o *opened) {
	err := o.WatchHealth(ctx, func(e gpu.HealthEvent) {
		if !e.Fatal {
			p.events.warn(ctx, v1alpha1.EventGPUError, e.Message)
			return
		}
		p.troubles.add(ctx, e)
		for _, c := range p.gpus.trouble(e.PCIAddress, p.troubles.problem(e.PCIAddress)) {
			p.tellChange(ctx, c)
			p.publisher.publish(ctx)
		}
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Errors of the GPUs are not watched, only looked for", "vendor", o.name)
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
	for _, e := range p.troubles.list() {
		if over, err := p.hardware.Recovered(ctx, e); over && err == nil {
			p.troubles.over(ctx, e)
		}
	}
	for _, e := range p.troubles.list() {
		problems[e.PCIAddress] = p.troubles.problem(e.PCIAddress)
	}
	return problems
}

// tellChange tells the node's admin that a GPU is out of service, and who is on
// it, or that it is back.
func (p *plugin) tellChange(ctx context.Context, c change) {
	name := gpu.GPUName(c.pciAddress)
	switch {
	case c.device != "" && c.problem == "":
		p.events.note(ctx, v1alpha1.EventHeldDeviceReleased, fmt.Sprintf("%s of GPU %s, which the GPU did not have any more, is not held any more", c.device, name))
		return
	case c.device != "":
		p.events.warn(ctx, v1alpha1.EventHeldDeviceGone, fmt.Sprintf("Nothing new is put on GPU %s as long as claims hold %s: %s; delete the pods of these claims%s", name, c.device, c.problem, p.heldBy(c.pciAddress)))
		return
	}
	if c.problem == "" {
		p.events.note(ctx, v1alpha1.EventGPUHealthy, fmt.Sprintf("GPU %s is well again and is given out", name))
		return
	}
	p.events.warn(ctx, v1alpha1.EventGPUUnhealthy, fmt.Sprintf("Nothing new is put on GPU %s: %s%s", name, c.problem, p.heldBy(c.pciAddress)))
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
	if daemon := p.daemons.serves(claim, d); daemon != "" {
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
