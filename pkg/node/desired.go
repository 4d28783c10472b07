package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// desiredState is the desired state of the node's GPUs, and its sources. plugin.looking
// protects it.
type desiredState struct {
	// configs reads the device plugin's configuration. config is the last valid one, nil if
	// there is none. read is set once configs was read without error.
	configs *profile.Source
	config  *profile.Profile
	read    bool
	// toldBad is the last error that was reported, empty if there is none.
	toldBad string
	// gpus is by PCI address.
	gpus map[string]profile.Desired
}

// share adds their share devices to GPUs that were found. It tells whether the settings of
// sharing have changed.
func (p *plugin) share(ctx context.Context, found []gpu.GPU) (changed bool) {
	p.readDesired(ctx)
	withMPS, load := p.hardware.LoadWithMPS()
	// Whether MPS works is tried with a daemon.
	shared := p.node.IsManaged() && slices.ContainsFunc(found, func(g gpu.GPU) bool {
		return g.Vendor == withMPS && p.desiredOf(&g).Shared
	})
	limits := p.daemons.Limits(ctx, load, shared)
	if ctx.Err() != nil {
		return false // the plugin is stopping, so the probe of the MPS daemon failed
	}
	return p.sharing.AddShares(ctx, found, func(g *gpu.GPU) profile.Desired {
		want := p.desiredOf(g)
		want.Limits = limits && g.Vendor == withMPS
		return want
	})
}

// desiredOf returns the desired state of one GPU.
func (p *plugin) desiredOf(g *gpu.GPU) profile.Desired {
	if c, ok := p.desired.gpus[g.PCIAddress]; ok {
		return c
	}
	if now, known := p.sharing.LookUp(g.PCIAddress); known {
		return now
	}
	return profile.Default()
}

// readDesired computes the desired state of all GPUs.
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
		p.events.Warn(ctx, names.EventProfileDoesNotFit, fmt.Sprintf("The profile of this node no longer fits its GPUs, so the settings of sharing stay as they are: %v", err))
	}
	p.desired.gpus = gpus
}

// readConfig reads the device plugin's configuration for the node. On an error, the previous
// one stays.
func (p *plugin) readConfig(ctx context.Context) {
	d := &p.desired
	now, err := d.configs.Read(p.node.Labels())
	if err != nil {
		if text := err.Error(); text != d.toldBad {
			d.toldBad = text
			p.events.Warn(ctx, names.EventDevicePluginConfigInvalid, fmt.Sprintf("The device plugin configuration of this node is invalid, so the previous one stays: %v", err))
		}
		return
	}
	if d.toldBad != "" {
		d.toldBad = ""
		p.events.Note(ctx, names.EventDevicePluginConfigValid, "The device plugin configuration of this node is valid again")
	}
	if now != nil && now != d.config && len(now.Notes) > 0 {
		p.events.Note(ctx, names.EventDevicePluginConfigKeysIgnored, fmt.Sprintf("Ignored keys of the %s: %s", now.Profile, strings.Join(now.Notes, "; ")))
	}
	d.config, d.read = now, true
}
