package publish_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/test/allocator"
)

// The attributes by which a claim asks for devices of one GPU.
var ofOneGPU = []string{"gpu.tranche.dev/parentUUID", "resource.kubernetes.io/pciBusID"}

func classOfMode(mode string) string { return "gpu-xcp-" + mode + ".tranche.dev" }

// amdWish is what a claim asks of the hardware.
type amdWish struct {
	class  string
	meets  func(mode string) bool
	count  int
	oneGPU string // the attribute; empty: of any GPUs
}

func (w amdWish) claim() *resourceapi.ResourceClaim {
	claim := allocator.Claim("claim", allocator.Request("device", w.class, int64(w.count)))
	if w.oneGPU != "" {
		return allocator.Together(claim, w.oneGPU)
	}
	return claim
}

// randomWish is one of all that could match on a machine: any class for one
// device, and partitions of a mode up to all of one GPU's.
func randomWish(m amdMachine, random *rand.Rand) amdWish {
	whole := func(mode string) bool { return mode == "spx" }
	cut := func(mode string) bool { return mode != "spx" }
	all := []amdWish{
		{wholeGPU, whole, 1, ""},
		{"gpu-amd.tranche.dev", whole, 1 + random.IntN(2), ""},
		{anyPartition, cut, 1, ""},
		{"gpu-xcp.tranche.dev", cut, 1 + random.IntN(2), ""},
	}
	for _, mode := range slices.Sorted(maps.Keys(m.modes)) {
		is := func(other string) bool { return other == mode }
		attribute := ofOneGPU[random.IntN(len(ofOneGPU))]
		if mode == "spx" {
			attribute = ""
		}
		all = append(all,
			amdWish{classOfMode(mode), is, 1, ""},
			amdWish{classOfMode(mode), is, m.modes[mode], attribute},
			amdWish{classOfMode(mode), is, 1 + random.IntN(m.modes[mode]), attribute},
		)
	}
	return all[random.IntN(len(all))]
}

// TestRandomClaimsOfAMDGPUs plays random orders of claims and releases against
// the scheduler's allocator: devices of a GPU that are granted are always of one
// mode and never the same piece twice, and a claim waits only when the hardware
// could not serve it.
func TestRandomClaimsOfAMDGPUs(t *testing.T) {
	for _, m := range amdMachines {
		for _, count := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d x %s", count, m.name()), func(t *testing.T) {
				gpus := m.gpus(t, count)
				c := clusterOf(t, gpus)
				playAMD(t, c, newAMDHardware(m, gpus), rand.New(rand.NewPCG(uint64(count), 0)))
			})
		}
	}
}

func playAMD(t *testing.T, c *cluster, h *amdHardware, random *rand.Rand) {
	t.Helper()
	seen := map[string]bool{}
	c.play(random, 500, func(step int) *allocator.Grant {
		w := randomWish(h.amdMachine, random)
		fits := h.fits(w.count, w.oneGPU != "", w.meets)
		grant, err := c.scheduler.Allocate(t.Context(), node, w.claim())
		require.NoError(t, err)
		require.Equal(t, fits, grant != nil, "step %d: a claim for %d of %s, of one GPU by %q, beside %v",
			step, w.count, w.class, w.oneGPU, slices.Sorted(maps.Keys(h.used)))
		if grant == nil {
			return nil
		}
		require.Len(t, grant.Devices(), w.count)
		for _, device := range grant.Devices() {
			h.use(t, device)
			p := h.pieces[device]
			require.True(t, w.meets(p.mode), "step %d: a claim of %s got %s", step, w.class, device)
			require.True(t, w.oneGPU == "" || p.gpu == h.pieces[grant.Devices()[0]].gpu, "step %d: %v", step, grant.Devices())
			seen[p.mode] = true
		}
		return grant
	}, h.release)
	require.Len(t, seen, len(h.modes), "a mode never came up: the test is too short")
}
