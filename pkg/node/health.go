package node

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// watchHealth marks a vendor's GPUs unhealthy when the driver reports fatal errors.
func (m *monitor) watchHealth(ctx context.Context, o *inventory.VendorDriver) {
	err := o.WatchHealth(ctx, func(e gpu.HealthEvent) {
		if !e.Fatal {
			m.events.Warn(ctx, names.EventGPUError, e.Message)
			return
		}
		m.troubles.Add(ctx, e)
		for _, c := range m.gpus.Trouble(e.PCIAddress, m.troubles.Problem(e.PCIAddress)) {
			m.reportChange(ctx, c)
			m.publisher.Publish(ctx)
		}
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the GPUs for errors; periodic checks go on", "vendor", o.Name)
	}
}

// problems checks the health of the GPUs that answered: fatal errors that are not over, and
// what the driver reports now. The problems are by PCI address.
func (m *monitor) problems(ctx context.Context, answer []gpu.GPU) map[string]gpu.Problem {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	found := make([]error, len(answer))
	var wg sync.WaitGroup
	for i := range answer {
		wg.Go(func() {
			driver, err := m.drivers.Of(answer[i].PCIAddress)
			if err == nil {
				err = driver.CheckHealth(ctx, answer[i].PCIAddress)
			}
			found[i] = err
		})
	}
	wg.Wait()
	problems := map[string]gpu.Problem{}
	for i, err := range found {
		if err != nil {
			problems[answer[i].PCIAddress] = gpu.ProblemOf(err)
		}
	}
	for _, e := range m.troubles.List() {
		driver, err := m.drivers.Of(e.PCIAddress)
		if err != nil {
			continue
		}
		if over, err := driver.Recovered(ctx, e); over && err == nil {
			m.troubles.Over(ctx, e)
		}
	}
	for _, e := range m.troubles.List() {
		problems[e.PCIAddress] = m.troubles.Problem(e.PCIAddress)
	}
	return problems
}

// reportRecovered reports the GPUs that had fatal errors before the plugin's start and are healthy now. A
// reboot repairs many, and leaves no ResourceSlices with their taints.
func (m *monitor) reportRecovered(ctx context.Context, before []gpu.HealthEvent) {
	for _, g := range m.gpus.List() {
		if !g.Unhealthy() && slices.ContainsFunc(before, func(e gpu.HealthEvent) bool { return e.PCIAddress == g.PCIAddress }) {
			m.events.GPUHealthy(ctx, g.Name())
		}
	}
}

// reportChange reports that a GPU has become unhealthy, and who uses it, or that it is healthy
// again.
func (m *monitor) reportChange(ctx context.Context, c inventory.Change) {
	name := gpu.NameOf(c.PCIAddress)
	switch {
	case c.Device != "" && c.Problem == "":
		m.events.Note(ctx, names.EventHeldDeviceReleased, fmt.Sprintf("%s of GPU %s, which no longer existed, is released", c.Device, name))
		return
	case c.Device != "":
		m.events.Warn(ctx, names.EventHeldDeviceGone, fmt.Sprintf("GPU %s is not used for new claims while claims hold %s: %s; delete the pods of these claims%s", name, c.Device, c.Problem, m.claims.heldBy(c.PCIAddress)))
		return
	}
	if c.Problem == "" {
		m.events.GPUHealthy(ctx, name)
		return
	}
	m.events.Warn(ctx, names.EventGPUUnhealthy, fmt.Sprintf("GPU %s is not used for new claims: %s%s", name, c.Problem, m.claims.heldBy(c.PCIAddress)))
}
