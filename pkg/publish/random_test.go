package publish_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/short"
)

// wish is what a claim of a class asks of the hardware.
type wish struct {
	class string
	meets func(cut) bool
}

// wishes are all classes that could match on a machine. A profile that only a
// few GPUs have comes up as often as any other.
func wishes(h *hardware) []wish {
	all := []wish{
		{wholeGPU, cut.whole},
		{"gpu-nvidia.tranche.dev", cut.whole},
		{anyMIG, func(c cut) bool { return !c.whole() }},
		{anyPartition, func(c cut) bool { return !c.whole() }},
	}
	known := map[string]bool{}
	for _, g := range h.inventory.GPUs {
		for _, p := range g.Model.Profiles {
			if known[p.Name] {
				continue
			}
			known[p.Name] = true
			all = append(all, wish{classOf(p.Name), func(c cut) bool { return !c.whole() && c.profile.Name == p.Name }})
		}
	}
	return all
}

// TestRandomClaims plays random orders of claims and releases against the
// scheduler's allocator, and asks the rules of the hardware after each:
// whatever is granted the hardware can make beside what exists, and a claim
// waits only when the hardware could make nothing for it.
func TestRandomClaims(t *testing.T) {
	machines := map[string]*models.Inventory{}
	for _, name := range nvidiaMachines(t) {
		if inv := builtIn(t, name); !testing.Short() || !ofOneModel(inv) {
			machines[name] = inv
		}
	}
	for _, model := range models.NVIDIAModels() {
		if m, _ := models.NVIDIAModelByKey(model); m.ProfilesOf == nil {
			machines["2 x "+model] = machineOf(t, model, 2)
		}
	}
	mixed, err := models.ParseInventory([]byte(
		"gpus: [{model: A30-24GB, migMode: enabled}, {model: H200-141GB}, {model: A100-80GB}, {model: L4-24GB}, {model: RTX-PRO-6000-Blackwell-96GB}]"))
	require.NoError(t, err)
	machines["one of each"] = mixed

	for name, inv := range machines {
		t.Run(name, func(t *testing.T) {
			gpus := gpusOf(t, inv)
			for seed := range uint64(short.Of(1, 3)) {
				c := clusterOf(t, gpus)
				playRandomClaims(t, c, newHardware(t, inv), rand.New(rand.NewPCG(seed, 0)))
			}
		})
	}
}

// ofOneModel reports whether all GPUs of a machine are alike: what holds for two of a
// model holds for eight of it.
func ofOneModel(inv *models.Inventory) bool {
	return !slices.ContainsFunc(inv.GPUs, func(g models.GPU) bool { return g.Model != inv.GPUs[0].Model })
}

func playRandomClaims(t *testing.T, c *cluster, h *hardware, random *rand.Rand) {
	t.Helper()
	all := wishes(h)
	c.play(random, 400, func(step int) *allocator.Grant {
		w := all[random.IntN(len(all))]
		count := int64(1)
		if random.IntN(8) == 0 {
			count = 2
		}
		grant := c.ask(allocator.Request("device", w.class, count))
		if grant == nil {
			if count == 1 {
				require.Empty(t, h.free(w.meets), "step %d: a claim of %s waits; the hardware has room", step, w.class)
			}
			return nil
		}
		require.Len(t, grant.Devices(), int(count))
		for _, device := range grant.Devices() {
			h.use(t, device)
			require.True(t, w.meets(h.cuts[device]), "step %d: a claim of %s got %s", step, w.class, device)
		}
		return grant
	}, h.release)
}

// TestEverythingIsPublished: the devices of a node are the cuts that its
// hardware knows, no more and no fewer.
func TestEverythingIsPublished(t *testing.T) {
	for _, model := range models.NVIDIAModels() {
		for _, mode := range []string{"enabled", "disabled"} {
			m, _ := models.NVIDIAModelByKey(model)
			if mode == "enabled" && !m.HasMIG() {
				continue
			}
			inv, err := models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, migMode: %s}]", model, mode))
			require.NoError(t, err)
			h := newHardware(t, inv)
			published := map[string]bool{}
			for _, slice := range slicesOf(t, gpusOf(t, inv)) {
				for _, d := range withoutMonitors(slice.Spec.Devices) {
					published[d.Name] = true
					require.Contains(t, h.cuts, d.Name, "%s with MIG mode %s", model, mode)
					checkFacts(t, h.cuts[d.Name], d)
				}
			}
			require.Len(t, published, len(h.cuts), "%s with MIG mode %s", model, mode)
		}
	}
}

// checkFacts compares what a device says with the table.
func checkFacts(t *testing.T, c cut, d resourceapi.Device) {
	t.Helper()
	if c.whole() {
		require.Equal(t, "gpu", *d.Attributes["type"].StringValue)
		require.NotContains(t, d.Attributes, resourceapi.QualifiedName("profile"))
		return
	}
	require.Equal(t, "mig", *d.Attributes["type"].StringValue)
	require.Equal(t, c.profile.Name, *d.Attributes["profile"].StringValue)
	require.EqualValues(t, c.start, *d.Attributes["placementStart"].IntValue)
	memory := d.Capacity["memory"].Value
	require.EqualValues(t, c.profile.MemoryMiB<<20, memory.Value())
	for i, name := range []resourceapi.QualifiedName{"decoders", "encoders", "jpegEngines", "ofaEngines"} {
		engines := d.Capacity[name].Value
		require.EqualValues(t, c.profile.Engines[i+1], engines.Value(), "%s of %s", name, d.Name)
	}
}
