package publish_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
)

// cut is a profile at a position of a GPU; without a profile, the whole GPU.
type cut struct {
	gpu     int
	profile *models.Profile
	start   int
}

func (c cut) whole() bool { return c.profile == nil }

// hardware is what a machine's GPUs allow by NVIDIA's rules, worked out from
// the table of profiles alone. It knows nothing of what was published.
type hardware struct {
	inventory *models.Inventory
	cuts      map[string]cut // every cut that exists, by its device name
	used      map[string]cut
}

func newHardware(t *testing.T, inv *models.Inventory) *hardware {
	t.Helper()
	h := &hardware{inventory: inv, cuts: map[string]cut{}, used: map[string]cut{}}
	add := func(c cut) {
		name := "gpu-" + strings.NewReplacer(":", "-", ".", "-").Replace(inv.GPUs[c.gpu].PCI)
		if !c.whole() {
			name += fmt.Sprintf("-mig-%s-%d", gpu.ProfileSlug(c.profile.Name), c.start)
		}
		require.NotContains(t, h.cuts, name)
		h.cuts[name] = c
	}
	for i, g := range inv.GPUs {
		// Ampere needs a reset to change its MIG mode: either the GPU or its
		// partitions. Hopper and later switch for each claim.
		fixed := g.Model.Architecture == "Ampere"
		if !fixed || !g.MIGMode {
			add(cut{gpu: i})
		}
		if fixed && !g.MIGMode {
			continue
		}
		for j := range g.Model.Profiles {
			for _, start := range g.Model.Profiles[j].Starts {
				add(cut{gpu: i, profile: &g.Model.Profiles[j], start: start})
			}
		}
	}
	return h
}

// refuses says why a cut cannot join those in use, empty when it can.
func (h *hardware) refuses(c cut) string {
	model := h.inventory.GPUs[c.gpu].Model
	if c.whole() {
		for name, other := range h.used {
			if other.gpu == c.gpu {
				return name + " is in use on the GPU"
			}
		}
		return ""
	}
	engines, multiprocessors, instances := c.profile.Engines, c.profile.Multiprocessors, 1
	for name, other := range h.used {
		if other.gpu != c.gpu {
			continue
		}
		if other.whole() {
			return "the whole GPU is in use"
		}
		if c.start < other.start+other.profile.Size && other.start < c.start+c.profile.Size {
			return "memory slices of " + name
		}
		for e := range engines {
			engines[e] += other.profile.Engines[e]
		}
		multiprocessors += other.profile.Multiprocessors
		if other.profile.Name == c.profile.Name {
			instances++
		}
	}
	for e := range engines {
		if engines[e] > model.Engines[e] {
			return fmt.Sprintf("engine %d: %d of %d", e, engines[e], model.Engines[e])
		}
	}
	if multiprocessors > model.Multiprocessors {
		return fmt.Sprintf("multiprocessors: %d of %d", multiprocessors, model.Multiprocessors)
	}
	if instances > c.profile.MaxInstances {
		return fmt.Sprintf("instances of %s: %d of %d", c.profile.Name, instances, c.profile.MaxInstances)
	}
	return ""
}

// use takes a cut into use, which the hardware must allow.
func (h *hardware) use(t *testing.T, name string) {
	t.Helper()
	c, ok := h.cuts[name]
	require.True(t, ok, "%s was granted; the hardware has no such cut", name)
	require.NotContains(t, h.used, name, "granted twice")
	require.Empty(t, h.refuses(c), "%s was granted; the hardware refuses it", name)
	h.used[name] = c
}

func (h *hardware) release(grant *allocator.Grant) {
	for _, device := range grant.Devices() {
		delete(h.used, device)
	}
}

// free lists every cut that the hardware would allow now.
func (h *hardware) free(wanted func(cut) bool) []string {
	var names []string
	for name, c := range h.cuts {
		if wanted(c) && h.refuses(c) == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
