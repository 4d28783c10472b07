package node

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// watchHealth marks a vendor's GPUs unhealthy when the driver reports fatal errors.
func (p *plugin) watchHealth(ctx context.Context, o *drivers.Opened) {
	err := o.WatchHealth(ctx, func(e gpu.HealthEvent) {
		if !e.Fatal {
			p.events.Warn(ctx, names.EventGPUError, e.Message)
			return
		}
		p.troubles.Add(ctx, e)
		for _, c := range p.gpus.Trouble(e.PCIAddress, p.troubles.Problem(e.PCIAddress)) {
			p.tellChange(ctx, c)
			p.publisher.Publish(ctx)
		}
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the GPUs for errors; periodic checks go on", "vendor", o.Name)
	}
}

// problems checks the health of the GPUs that answered: fatal errors that are not over, and
// what the driver reports now. The problems are by PCI address.
func (p *plugin) problems(ctx context.Context, answer []gpu.GPU) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	found := make([]error, len(answer))
	var wg sync.WaitGroup
	for i := range answer {
		wg.Go(func() {
			driver, err := p.hardware.Of(answer[i].PCIAddress)
			if err == nil {
				err = driver.CheckHealth(ctx, answer[i].PCIAddress)
			}
			found[i] = err
		})
	}
	wg.Wait()
	problems := map[string]string{}
	for i, err := range found {
		if err != nil {
			problems[answer[i].PCIAddress] = err.Error()
		}
	}
	for _, e := range p.troubles.List() {
		driver, err := p.hardware.Of(e.PCIAddress)
		if err != nil {
			continue
		}
		if over, err := driver.Recovered(ctx, e); over && err == nil {
			p.troubles.Over(ctx, e)
		}
	}
	for _, e := range p.troubles.List() {
		problems[e.PCIAddress] = p.troubles.Problem(e.PCIAddress)
	}
	return problems
}

// tellRecovered reports the GPUs that had fatal errors before the plugin's start and are healthy now. A
// reboot repairs many, and leaves no ResourceSlices with their taints.
func (p *plugin) tellRecovered(ctx context.Context, before []gpu.HealthEvent) {
	for _, g := range p.gpus.List() {
		if !g.Unhealthy() && slices.ContainsFunc(before, func(e gpu.HealthEvent) bool { return e.PCIAddress == g.PCIAddress }) {
			p.events.GPUHealthy(ctx, g.Name())
		}
	}
}

// tellChange reports that a GPU has become unhealthy, and who uses it, or that it is healthy
// again.
func (p *plugin) tellChange(ctx context.Context, c inventory.Change) {
	name := gpu.NameOf(c.PCIAddress)
	switch {
	case c.Device != "" && c.Problem == "":
		p.events.Note(ctx, names.EventHeldDeviceReleased, fmt.Sprintf("%s of GPU %s, which no longer existed, is released", c.Device, name))
		return
	case c.Device != "":
		p.events.Warn(ctx, names.EventHeldDeviceGone, fmt.Sprintf("GPU %s is not used for new claims while claims hold %s: %s; delete the pods of these claims%s", name, c.Device, c.Problem, p.heldBy(c.PCIAddress)))
		return
	}
	if c.Problem == "" {
		p.events.GPUHealthy(ctx, name)
		return
	}
	p.events.Warn(ctx, names.EventGPUUnhealthy, fmt.Sprintf("GPU %s is not used for new claims: %s%s", name, c.Problem, p.heldBy(c.PCIAddress)))
}
