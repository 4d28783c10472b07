package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// desiredState is the desired state of the node's GPUs, and what it was read from. Only
// the goroutine that looks at the GPUs uses it.
type desiredState struct {
	// configs reads the device plugin's configuration. config is what it last read
	// without error, nil if there is none; read is set once it did so in this run.
	configs *profile.Source
	config  *profile.Profile
	read    bool
	// toldBad is the last error that was reported, empty if there is none.
	toldBad string
	// gpus is by PCI address.
	gpus map[string]profile.Desired
}

// share adds to GPUs that were found the devices by which they are shared. It
// tells whether that has changed.
func (p *plugin) share(ctx context.Context, found []gpu.GPU) (changed bool) {
	p.readDesired(ctx)
	withMPS, load := p.hardware.LoadWithMPS()
	shared := slices.ContainsFunc(found, func(g gpu.GPU) bool {
		return g.Vendor == withMPS && p.desiredOf(&g).Shared
	})
	limits := p.daemons.Limits(ctx, load, shared)
	if ctx.Err() != nil {
		return false // the plugin ends: that a daemon was not seen to work says nothing
	}
	return p.sharing.AddShares(ctx, found, func(g *gpu.GPU) profile.Desired {
		want := p.desiredOf(g)
		want.Limits = limits && g.Vendor == withMPS
		return want
	})
}

// desiredOf is the desired state of one GPU.
func (p *plugin) desiredOf(g *gpu.GPU) profile.Desired {
	if c, ok := p.desired.gpus[g.PCIAddress]; ok {
		return c
	}
	if now, known := p.sharing.LookUp(g.PCIAddress); known {
		return now
	}
	return profile.Default()
}

// readDesired works out the desired state of all GPUs anew.
func (p *plugin) readDesired(ctx context.Context) {
	p.readConfig(ctx)
	sources := profile.Sources{
		Config:    p.desired.config,
		Undecided: !p.desired.read || p.follow.Undecided(),
		Current:   p.sharing.LookUp,
	}
	sources.Applied, sources.Layouts = p.profile.AppliedLayouts()
	gpus, err := sources.Desired(p.roster.All())
	text := ""
	if err != nil {
		text = err.Error()
	}
	if p.sharing.First("profile", text) && err != nil {
		p.events.Warn(ctx, v1alpha1.EventProfileDoesNotFit, fmt.Sprintf("The profile of this node does not fit its GPUs any more, so they stay shared as they are: %v", err))
	}
	p.desired.gpus = gpus
}

// readConfig reads the device plugin's configuration for the node. One with an error
// changes nothing.
func (p *plugin) readConfig(ctx context.Context) {
	d := &p.desired
	now, err := d.configs.Read(p.node.Labels())
	if err != nil {
		if text := err.Error(); text != d.toldBad {
			d.toldBad = text
			p.events.Warn(ctx, v1alpha1.EventBadSettings, fmt.Sprintf("The settings of this node's GPUs have an error, so those before stay: %v", err))
		}
		return
	}
	if d.toldBad != "" {
		d.toldBad = ""
		p.events.Note(ctx, v1alpha1.EventSettingsGood, "The settings of this node's GPUs have no error any more")
	}
	if now != nil && now != d.config && len(now.Notes) > 0 {
		p.events.Note(ctx, v1alpha1.EventSettingsWithoutEffect, fmt.Sprintf("Of %s, this changes nothing here: %s", now.Profile, strings.Join(now.Notes, "; ")))
	}
	d.config, d.read = now, true
}
