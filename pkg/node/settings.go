package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// nodeSettings is what administrators want of the node's cards. Only the goroutine
// that looks has it.
type nodeSettings struct {
	source *profile.Source
	// good is what was last read without error, nil if nothing was in this run.
	good *profile.Settings
	// toldBad is the error that was told of last, empty when all is well.
	toldBad string
	// profile is what the profile says that the node follows, by PCI address; nil: it
	// says nothing.
	profile map[string]profile.Card
}

// settingsSource reads the files that say how the cards are shared. Where there is a
// controller, those with PartitionProfiles are for the controller alone, which keeps them
// as objects of the API server: two who read them would not always agree.
func (c *Config) settingsSource(ctx context.Context) *profile.Source {
	profiles := c.ProfilesDir
	if c.GPUNodes != nil {
		profiles = ""
		c.tellIgnoredFiles(ctx)
	}
	return profile.NewSource(profiles, c.DevicePluginConfigsDir)
}

// tellIgnoredFiles says which files are there and are not read.
func (c *Config) tellIgnoredFiles(ctx context.Context) {
	if c.ProfilesDir == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(c.ProfilesDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return
	}
	klog.FromContext(ctx).Info("The controller says which profile this node follows, so these files with PartitionProfiles are not read here", "files", files)
}

// share adds to cards that were found the devices by which they are shared. It
// tells whether that has changed.
func (p *plugin) share(ctx context.Context, found []gpu.GPU) (changed bool) {
	p.readSettings(ctx)
	sharesNVIDIA := slices.ContainsFunc(found, func(card gpu.GPU) bool {
		return card.Vendor == gpu.NVIDIA && p.wanted(&card).Shared
	})
	limits := p.daemons.limits(ctx, p.hardware.loadOf(gpu.NVIDIA), sharesNVIDIA)
	if ctx.Err() != nil {
		return false // the plugin ends: that a daemon was not seen to work says nothing
	}
	return p.sharing.addShares(ctx, found, func(card *gpu.GPU) profile.Card {
		want := p.wanted(card)
		want.Limits = limits && card.Vendor == gpu.NVIDIA
		return want
	})
}

// wanted is what is wanted of a card. A plugin that has found settings with errors
// only goes by those that were in force before it started, and so does one whose
// controller has not brought the node to a profile yet: they are not given up for the
// moment until it has.
func (p *plugin) wanted(card *gpu.GPU) profile.Card {
	if c, ok := p.settings.profile[card.PCIAddress]; ok {
		return c
	}
	good := p.settings.good
	if good != nil && (good.Profile != "" || !p.follow.undecided()) {
		return good.For(card)
	}
	if now, known := p.sharing.lookUp(card.PCIAddress); known {
		return now
	}
	return profile.Default()
}

// readSettings takes in what administrators want now. Of settings with an error
// nothing is taken: those before stay.
func (p *plugin) readSettings(ctx context.Context) {
	s := &p.settings
	labels := p.node.labels()
	if p.follow != nil {
		labels = withoutProfile(labels) // the controller tells what it comes to
	}
	now, err := s.source.Read(labels)
	s.profile = p.profileSettings(ctx, now)
	if err != nil {
		if text := err.Error(); text != s.toldBad {
			s.toldBad = text
			p.events.warn(ctx, "BadSettings", fmt.Sprintf("The settings of this node's GPUs have an error, so those before stay: %v", err))
		}
		return
	}
	if s.toldBad != "" {
		s.toldBad = ""
		p.events.note(ctx, "SettingsGood", "The settings of this node's GPUs have no error any more")
	}
	if now != s.good && len(now.Notes) > 0 {
		p.events.note(ctx, "SettingsWithoutEffect", fmt.Sprintf("Of %s, this changes nothing here: %s", now.Profile, strings.Join(now.Notes, "; ")))
	}
	s.good = now
}

// heldShares lists the shares of a card that claims hold, or are getting,
// whichever plugin on the node prepares them.
func (p *plugin) heldShares(ctx context.Context, pciAddress string) ([]gpu.Placement, error) {
	if err := p.claims.Refresh(ctx); err != nil {
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
