package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// drivers knows which drivers the node should have and cannot use. A plugin that lacks
// one serves the kubelet and is not ready, so that an older one that still works is not
// ended for it.
type drivers struct {
	// mu protects what follows.
	mu sync.Mutex
	// failed is why drivers that are expected cannot be used.
	failed map[gpu.Vendor]error
	// unlisted is why the GPUs could not be listed at the start, until they were.
	unlisted error
}

func (d *drivers) set(failed map[gpu.Vendor]error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = failed
}

func (d *drivers) setUnlisted(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unlisted = err
}

// problem is why the plugin cannot use all the drivers that it should, nil if it can.
func (d *drivers) problem() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var problems []error
	for _, v := range slices.Sorted(maps.Keys(d.failed)) {
		problems = append(problems, fmt.Errorf("the %s driver of this node cannot be used: %w", v.Title(), d.failed[v]))
	}
	if d.unlisted != nil {
		problems = append(problems, fmt.Errorf("the GPUs of this node cannot be listed: %w", d.unlisted))
	}
	return errors.Join(problems...)
}

// ready says why the plugin is not ready: the kubelet has not registered it, or it
// serves the kubelet without a driver that it should have.
func (p *plugin) ready() error {
	if err := p.registration.Ready(); err != nil {
		return err
	}
	return p.drivers.problem()
}

// expectSilent publishes the GPUs that were here before and whose driver cannot be
// used, as they were, with what is wrong: claims may hold them.
func (p *plugin) expectSilent(ctx context.Context) {
	silent := slices.DeleteFunc(p.roster.all(), func(g gpu.GPU) bool { return p.hardware.whyNot(g.Vendor) == nil })
	if len(silent) == 0 {
		return
	}
	p.seed(ctx, silent, p.driverProblems())
}

// seed takes in GPUs as they were before the plugin started, offered and shared as they
// were then, with what is wrong with them now.
func (p *plugin) seed(ctx context.Context, before []gpu.GPU, problems map[string]string) {
	p.hardware.expect(before)
	p.shape(before)
	p.sharing.addShares(ctx, before, func(g *gpu.GPU) profile.Desired {
		now, _ := p.sharing.lookUp(g.PCIAddress)
		return now
	})
	p.gpus.seed(before, problems)
}

// driverProblems is what is wrong with the known GPUs whose driver cannot be used.
func (p *plugin) driverProblems() map[string]string {
	problems := map[string]string{}
	note := func(g *gpu.GPU) {
		if err := p.hardware.whyNot(g.Vendor); err != nil {
			problems[g.PCIAddress] = "its driver cannot be used: " + err.Error()
		}
	}
	for _, g := range p.roster.all() {
		note(&g)
	}
	for _, c := range p.gpus.list() {
		note(&c.GPU)
	}
	return problems
}
