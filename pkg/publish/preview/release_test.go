package preview

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// What must be released for the profiles of the chart is what the plugin plans with, on
// machines in random states.
func TestAsThePluginPlans(t *testing.T) {
	files, err := filepath.Glob("../../../deployments/helm/tranche/files/profiles/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	compared, released := 0, 0
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	for _, file := range files {
		to := snapshot(t, file)
		for _, name := range models.InventoryNames() {
			inv, err := models.LoadInventory(name)
			require.NoError(t, err)
			if random.IntN(4) == 0 { // All of them take long.
				n, held, gpus := randomNode(random, inv)
				got, err := Of(n, to, held)
				desired, failed := profile.Resolve(to, plain(gpus), existing(gpus))
				require.Equal(t, failed == nil, err == nil, "%s on %s: %v, %v", file, name, err, failed)
				if failed != nil {
					continue
				}
				for i := range gpus {
					gpus[i].To, gpus[i].Unchanged = desired[gpus[i].PCIAddress].Layout, desired[gpus[i].PCIAddress].Unchanged
				}
				plan := profile.NewChanges(gpus)
				if len(plan.Refused) > 0 {
					continue
				}
				var want []string
				for _, g := range plan.GPUs {
					for _, h := range g.InTheWay {
						want = append(want, h.Device)
					}
				}
				slices.Sort(want)
				want = slices.Compact(want)
				require.Equal(t, want, got.Devices, "%s on %s: %+v", file, name, n.Status.Node.GPUs)
				require.Empty(t, got.Unknown)
				compared, released = compared+1, released+len(want)
			}
		}
	}
	assert.Greater(t, compared, 100)
	assert.Greater(t, released, 100)
}

func snapshot(t *testing.T, file string) v1beta1.ProfileSnapshot {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var p v1beta1.PartitionProfile
	require.NoError(t, yaml.UnmarshalStrict(data, &p))
	return profile.Snapshot("to", p.Spec.Rules)
}

// randomNode is a node some of whose GPUs are held: as its plugin reports it, what claims hold,
// and as the plugin plans.
func randomNode(random *rand.Rand, inv *models.Inventory) (*v1beta1.GPUNode, []string, []profile.NodeGPU) {
	n := &v1beta1.GPUNode{Status: v1beta1.GPUNodeStatus{Node: &v1beta1.NodeReport{}}}
	var claimed []string
	var out []profile.NodeGPU
	for _, g := range inv.Hardware("node") {
		r := v1beta1.GPUReport{Name: g.Name(), Vendor: string(g.Vendor), ProductName: g.ProductName, Index: int32(g.Index)}
		modes := gpu.Modes{Legal: g.Modes}
		if g.Vendor == gpu.AMD && len(g.Modes) > 0 {
			modes.Memory = g.MemoryMode
			modes.Compute = g.Modes[modes.Memory][random.IntN(len(g.Modes[modes.Memory]))]
			modes.Computes = g.Modes[modes.Memory]
			for m := range g.Modes {
				modes.Memories = append(modes.Memories, m)
			}
			r.ComputePartition, r.MemoryPartition = modes.Compute, modes.Memory
		}
		mig := slices.ContainsFunc(g.Placements, isMIG) || g.OtherMIG != nil
		if g.Vendor == gpu.NVIDIA && mig {
			modes.MIG, r.MIGMode, modes.MIGNeedsReset = gpu.MIGOff, v1beta1.MIGModeDisabled, g.OtherMIG != nil
			if random.IntN(2) == 0 {
				modes.MIG, r.MIGMode = gpu.MIGOn, v1beta1.MIGModeEnabled
			}
			g = g.WithMIG(modes.MIG)
		}
		p := profile.NodeGPU{GPU: g, Modes: modes}
		if fits := slices.DeleteFunc(slices.Clone(g.Placements), func(p gpu.Placement) bool { return !exists(p, modes) }); len(fits) > 0 && random.IntN(4) > 0 {
			held := fits[random.IntN(len(fits))]
			p.Held = []profile.Holder{{Device: held.Name(), Placement: held}}
			if held.Type != gpu.TypeGPU {
				p.Live = []gpu.Partition{{GPU: held.GPU, Type: held.Type, Profile: held.Profile, Start: held.Start, Size: held.Size, Complete: true}}
				p.Ours = []gpu.Placement{held}
				r.Partitions = []v1beta1.PartitionReport{{Name: held.Name(), Profile: held.Profile}}
			}
			if random.IntN(3) == 0 {
				p.Held[0].Device = gpu.ShareName(held.Name(), gpu.ByMemory)
			}
			claimed = append(claimed, p.Held[0].Device)
		}
		out = append(out, p)
		n.Status.Node.GPUs = append(n.Status.Node.GPUs, r)
	}
	return n, claimed, out
}

func isMIG(p gpu.Placement) bool { return p.Type == gpu.TypeMIG }

// exists reports whether a placement can be held in a mode.
func exists(p gpu.Placement, m gpu.Modes) bool {
	switch {
	case p.Type == gpu.TypeMIG:
		return m.MIG == gpu.MIGOn
	case m.MIG == gpu.MIGOn:
		return false
	case m.Compute == "SPX":
		return p.Type == gpu.TypeGPU
	case m.Compute != "":
		return p.Type == gpu.TypeXCP && strings.EqualFold(p.Profile, m.Compute)
	}
	return true
}

func plain(gpus []profile.NodeGPU) []gpu.GPU {
	out := make([]gpu.GPU, len(gpus))
	for i := range gpus {
		out[i] = gpus[i].GPU
	}
	return out
}

func existing(gpus []profile.NodeGPU) func(string) profile.Existing {
	return func(address string) profile.Existing {
		i := slices.IndexFunc(gpus, func(g profile.NodeGPU) bool { return g.PCIAddress == address })
		return profile.Existing{Partitions: gpus[i].Live}
	}
}

func TestGPUsThatAreNotKnown(t *testing.T) {
	n := &v1beta1.GPUNode{}
	got, err := Of(n, v1beta1.ProfileSnapshot{}, nil)
	require.NoError(t, err)
	assert.Empty(t, got)
	n.Status.Node = &v1beta1.NodeReport{GPUs: []v1beta1.GPUReport{
		{Name: "gpu-0000-c1-00-0", Vendor: "nvidia", ProductName: "NVIDIA of the future"},
		{Name: "something", Vendor: "nvidia", ProductName: "NVIDIA H100 80GB HBM3"},
	}}
	got, err = Of(n, profile.Snapshot("p", []v1beta1.Rule{{MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}}}), nil)
	require.NoError(t, err)
	assert.Equal(t, Release{Unknown: []string{"gpu-0000-c1-00-0", "something"}}, got)
}

func TestAddressOf(t *testing.T) {
	for name, want := range map[string]string{"gpu-0000-c1-00-0": "0000:c1:00.0", "gpu-10000-c1-00-7": "10000:c1:00.7", "gpu-0000-c1-00": "", "gpu-x-c1-00-0": "", "": ""} {
		got, ok := addressOf(name)
		assert.Equal(t, want != "", ok, name)
		if ok {
			assert.Equal(t, want, got)
		}
	}
}

// What is held of a GPU that changes, and is not one of its placements, must be released, too: the
// device for monitors, and what another plugin version has published.
func TestReleaseOfWhatIsNoPlacement(t *testing.T) {
	const h100, l4 = "gpu-0000-c1-00-0", "gpu-0000-c2-00-0"
	n := &v1beta1.GPUNode{Status: v1beta1.GPUNodeStatus{Node: &v1beta1.NodeReport{GPUs: []v1beta1.GPUReport{
		{Name: h100, Vendor: "nvidia", ProductName: "NVIDIA H100 80GB HBM3", MIGMode: v1beta1.MIGModeEnabled},
		{Name: l4, Vendor: "nvidia", ProductName: "NVIDIA L4"},
	}}}}
	disabled := profile.Snapshot("p", []v1beta1.Rule{{MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}}})
	held := []string{l4 + "-monitor", h100 + "-monitor", h100 + "-of-the-future", h100 + "-mig-1g-10gb-0", h100 + "-mig-1g-10gb-0", l4}
	got, err := Of(n, disabled, held)
	require.NoError(t, err)
	assert.Equal(t, Release{Devices: []string{h100 + "-mig-1g-10gb-0", h100 + "-monitor", h100 + "-of-the-future"}}, got)

	static := profile.Snapshot("p", []v1beta1.Rule{{GPUs: &v1beta1.GPUSelector{ProductNames: []string{"NVIDIA L4"}}, MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "1g", Count: ptr.To[int32](1)}}}}})
	_, err = Of(n, static, held)
	require.ErrorContains(t, err, "does not support MIG")
	n.Status.Node.GPUs[0].ProductName = "NVIDIA of the future"
	got, err = Of(n, static, held)
	require.NoError(t, err, "the rule may select what is not known")
	assert.Equal(t, Release{Unknown: []string{h100}}, got)
}

func TestSelects(t *testing.T) {
	known := v1beta1.GPUReport{Name: "gpu-0000-c1-00-0", Vendor: "nvidia", ProductName: "NVIDIA L4"}
	unknown := v1beta1.GPUReport{Name: "gpu-0000-c2-00-0", Vendor: "nvidia", ProductName: "NVIDIA of the future"}
	of := func(name string) []v1beta1.Rule {
		return []v1beta1.Rule{{GPUs: &v1beta1.GPUSelector{ProductNames: []string{name}}, MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}}}
	}
	report := func(gpus ...v1beta1.GPUReport) *v1beta1.NodeReport { return &v1beta1.NodeReport{GPUs: gpus} }
	for name, test := range map[string]struct {
		node  *v1beta1.NodeReport
		rules []v1beta1.Rule
		want  bool
	}{
		"its GPU":                    {report(known), of("NVIDIA L4"), true},
		"another GPU":                {report(known), of("NVIDIA H100 80GB HBM3"), false},
		"another, and one not known": {report(known, unknown), of("NVIDIA H100 80GB HBM3"), true},
		"no GPU":                     {report(), of("NVIDIA L4"), true},
		"no report":                  {nil, of("NVIDIA L4"), true},
		"rules with a mistake":       {report(known), []v1beta1.Rule{{MIG: &v1beta1.MIG{Mode: "Sometimes"}}}, true},
	} {
		p := &v1beta1.PartitionProfile{Spec: v1beta1.PartitionProfileSpec{Rules: test.rules}}
		p.Name = "p"
		assert.Equal(t, test.want, Selects(&v1beta1.GPUNode{Status: v1beta1.GPUNodeStatus{Node: test.node}}, p), name)
	}
}
