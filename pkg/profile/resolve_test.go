package profile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

func machine(t testing.TB, name string) []gpu.GPU {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	return inv.Hardware("node")
}

func rulesOf(t testing.TB, text string) []v1beta1.Rule {
	t.Helper()
	var rules []v1beta1.Rule
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &rules))
	return rules
}

func fromRules(t testing.TB, text string) *Profile {
	t.Helper()
	s, err := FromRules("p", rulesOf(t, text))
	require.NoError(t, err)
	return s
}

// spell is a shape in few words: the layout by name and start.
func spell(s Layout) string {
	text := string(s.Partitioning) + s.Compute + s.Memory
	if s.Named {
		text += "dynamic"
	}
	if s.NoWhole {
		text += " no whole"
	}
	for _, p := range s.Profiles {
		text += " " + p
	}
	for _, p := range s.Static {
		text += fmt.Sprintf(" %s@%d", p.Profile, p.Start)
	}
	return text
}

func TestShapes(t *testing.T) {
	const sevenOnes = "Static 1g.10gb@6 1g.10gb@5 1g.10gb@4 1g.10gb@3 1g.10gb@2 1g.10gb@1 1g.10gb@0"
	for name, tt := range map[string]struct {
		inventory, rules string
		// want is the shape of each GPU; one that is missing is like the last.
		want []string
	}{
		"nothing":              {"h100x8", "[]", []string{""}},
		"sharing only":         {"h100x8", "[{sharing: {replicas: 2}}]", []string{""}},
		"off":                  {"h100x8", "[{mig: {mode: Disabled}}]", []string{"Off"}},
		"MIG mode only":        {"h100x8", "[{mig: {mode: NoPartitions}}]", []string{"Static"}},
		"MIG mode out of mode": {"a100-80x8-mig-off", "[{mig: {mode: NoPartitions}}]", []string{"Static"}},
		"those with MIG": {"mixed", "[{gpus: {migSupport: Capable, count: 5}, mig: {mode: Disabled}}, {gpus: {migSupport: Capable}, mig: {mode: NoPartitions}}, {gpus: {migSupport: Incapable}, extendedResource: {device: GPUReplica}, mig: {}}]",
			[]string{"Off", "Off", "Off", "Off", "Off", "Static", "Static", "", "", "Static"}},
		"AMD is not without MIG": {"mi300x8", "[{gpus: {migSupport: Incapable}}, {xcp: {computePartition: CPX}}]", []string{"CPX"}},
		"unchanged":              {"h100x8", "[{gpus: {count: 1}, mig: {mode: Disabled}}, {unchanged: true}]", []string{"Off", ""}},
		"dynamic":                {"h100x8", "[{mig: {}}]", []string{"dynamic"}},
		"profiles":               {"h100x8", "[{mig: {profiles: [3g.40gb, 1g, 1g.10gb]}}]", []string{"dynamic 1g.10gb 3g.40gb"}},
		"no whole GPUs":          {"h100x8", "[{mig: {mode: Dynamic, wholeGPUs: false}}]", []string{"dynamic no whole"}},
		"whole GPUs":             {"h100x8", "[{mig: {mode: Dynamic, wholeGPUs: true}}]", []string{"dynamic"}},
		"static":                 {"h100x8", "[{mig: {mode: Static, partitions: [{profile: 1g}]}}]", []string{sevenOnes}},
		"static out of mode":     {"a100-80x8-mig-off", "[{mig: {mode: Static, partitions: [{profile: 1g, count: 1}]}}]", []string{"Static 1g.10gb@6"}},
		"profiles out of mode":   {"a100-80x8-mig-off", "[{mig: {profiles: [1g]}}]", []string{"dynamic 1g.10gb"}},
		"by count": {"h100x8", "[{gpus: {count: 2}, mig: {mode: Static, partitions: [{profile: 7g, count: 1}]}}, {gpus: {count: 1}, mig: {mode: Disabled}}, {mig: {}}]",
			[]string{"Static 7g.80gb@0", "Static 7g.80gb@0", "Off", "dynamic"}},
		"by PCI ids": {"mixed", `[{gpus: {pciIDs: ["0x233010de"]}, mig: {mode: Disabled}}, {gpus: {productNames: ["*A100*"]}, mig: {profiles: [1g]}}]`,
			[]string{"Off", "Off", "Off", "Off", "dynamic 1g.10gb", "dynamic 1g.10gb", "dynamic 1g.10gb", "", "", "", ""}},
		"other PCI ids":        {"h100x8", `[{gpus: {pciIDs: ["0x20B010DE", "0x233010DE:0x16C110DE"]}, mig: {mode: Disabled}}]`, []string{""}},
		"a subsystem's PCI id": {"mi300x8", `[{gpus: {pciIDs: ["0x74a11002:0x74a11002"]}, xcp: {computePartition: CPX}}]`, []string{"CPX"}},
		"without MIG":          {"l4x4", "[{mig: {}}]", []string{""}},
		"off without MIG":      {"l4x4", "[{mig: {mode: Disabled}}]", []string{""}},
		"MIG of AMD's GPUs":    {"mi300x8", "[{mig: {mode: Static, partitions: [{profile: 1g}]}}]", []string{""}},
		"modes of NVIDIA's":    {"h100x8", "[{xcp: {computePartition: CPX, memoryPartition: NPS4}}]", []string{""}},
		"CPX":                  {"mi300x8", "[{xcp: {computePartition: CPX}}]", []string{"CPX"}},
		"CPX, NPS4":            {"mi300x8", "[{xcp: {computePartition: CPX, memoryPartition: NPS4}}]", []string{"CPXNPS4"}},
		"NPS4":                 {"mi300x8", "[{xcp: {memoryPartition: NPS4}}]", []string{"NPS4"}},
		"all GPUs share the memory mode": {"mi300x8", "[{gpus: {count: 2}, xcp: {computePartition: CPX, memoryPartition: NPS4}}, {gpus: {count: 1}, xcp: {computePartition: QPX}}]",
			[]string{"CPXNPS4", "CPXNPS4", "QPXNPS4", "NPS4"}},
		"one memory mode by two rules": {"mi300x8", "[{gpus: {count: 1}, xcp: {memoryPartition: NPS4}}, {gpus: {vendor: amd}, xcp: {memoryPartition: NPS4}}]", []string{"NPS4"}},
		"resource of a partition":      {"h100x8", "[{mig: {profiles: [1g]}, extendedResource: {device: Partition, profile: 1g.10gb}}]", []string{"dynamic 1g.10gb"}},
		"both vendors": {"h100x2-mi300x2", "[{mig: {mode: Static, partitions: [{profile: 7g}]}, xcp: {computePartition: SPX}}]",
			[]string{"Static 7g.80gb@0", "SPX", "Static 7g.80gb@0", "SPX"}},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := machine(t, tt.inventory)
			got, err := fromRules(t, tt.rules).Resolve(gpus, nil)
			require.NoError(t, err)
			require.Len(t, got, len(gpus))
			for i, g := range gpus {
				assert.Equal(t, tt.want[min(i, len(tt.want)-1)], spell(got[g.PCIAddress].Layout), g.Name())
			}
		})
	}
}

// The sharing part is what For says, too.
func TestResolveSharesAsForDoes(t *testing.T) {
	for _, name := range models.InventoryNames() {
		gpus := machine(t, name)
		s := fromRules(t, "[{gpus: {productNames: ['*H100*', '*MI300*']}, sharing: {replicas: 3, timeSlice: Long, partitions: {profiles: [cpx, 1g.10gb]}}}, {gpus: {vendor: nvidia}, extendedResource: {device: GPUReplica}}]")
		got, err := s.Resolve(gpus, nil)
		require.NoError(t, err)
		for i := range gpus {
			assert.Equal(t, s.For(&gpus[i]), got[gpus[i].PCIAddress])
		}
	}
}

func TestResolveKeepsWhatIsThere(t *testing.T) {
	gpus := machine(t, "h100x8")
	there := func(pci string) Existing {
		if pci != gpus[1].PCIAddress {
			return Existing{}
		}
		return Existing{Partitions: []gpu.Partition{{GPU: pci, Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 2, Size: 1, Complete: true}}}
	}
	got, err := fromRules(t, "[{mig: {mode: Static, partitions: [{profile: 1g, count: 1}]}}]").Resolve(gpus, there)
	require.NoError(t, err)
	assert.Equal(t, "Static 1g.10gb@6", spell(got[gpus[0].PCIAddress].Layout))
	assert.Equal(t, "Static 1g.10gb@2", spell(got[gpus[1].PCIAddress].Layout))
}

// GPUs that a rule leaves unchanged keep their layouts, and have the rest of the rule.
func TestUnchanged(t *testing.T) {
	gpus := machine(t, "h100x2-mi300x2")
	gpus[1], gpus[2] = gpus[2], gpus[1] // first NVIDIA's, then AMD's
	layouts := map[string]Layout{
		gpus[0].PCIAddress: {Partitioning: PartitioningStatic, Static: gpus[0].Placements[:1]},
		gpus[2].PCIAddress: {Compute: "CPX"},
		gpus[3].PCIAddress: {Compute: "DPX", Memory: "NPS1"},
	}
	there := func(pci string) Existing { return Existing{Layout: layouts[pci]} }
	got, err := fromRules(t, "[{gpus: {indexes: [9]}, xcp: {memoryPartition: NPS4}}, {unchanged: true, sharing: {replicas: 3}}]").Resolve(gpus, there)
	require.NoError(t, err)
	for _, g := range gpus {
		assert.Equal(t, layouts[g.PCIAddress], got[g.PCIAddress].Layout)
		assert.True(t, got[g.PCIAddress].Unchanged)
		assert.Equal(t, 3, got[g.PCIAddress].Replicas)
	}
	// The mode that they are in is no change.
	got, err = fromRules(t, "[{gpus: {pciBusIDs: ['"+gpus[3].PCIAddress+"']}, xcp: {memoryPartition: NPS1}}, {unchanged: true}]").Resolve(gpus, there)
	require.NoError(t, err)
	assert.Equal(t, Layout{Compute: "CPX", Memory: "NPS1"}, got[gpus[2].PCIAddress].Layout)
	assert.Equal(t, layouts[gpus[0].PCIAddress], got[gpus[0].PCIAddress].Layout)
	_, err = fromRules(t, "[{unchanged: true, extendedResource: {device: Partition, profile: 1g.10gb+me}}]").Resolve(gpus[:1], there)
	assert.ErrorContains(t, err, "is 1g.10gb+me, which the rule does not offer")
}

// GPUs are counted in PCI order, in whatever order they come, and what they are
// given in stays as it is.
func TestCountIsInPCIOrder(t *testing.T) {
	gpus := machine(t, "h100x8")
	slices.Reverse(gpus)
	got, err := fromRules(t, "[{gpus: {count: 1}, mig: {mode: Disabled}}]").Resolve(gpus, nil)
	require.NoError(t, err)
	assert.Equal(t, PartitioningOff, got["0000:1b:00.0"].Layout.Partitioning)
	assert.Equal(t, PartitioningDynamic, got[gpus[0].PCIAddress].Layout.Partitioning)
	assert.Equal(t, "0000:df:00.0", gpus[0].PCIAddress)
}

func TestWhatDoesNotFit(t *testing.T) {
	const h100 = "1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"
	for name, tt := range map[string]struct {
		inventory, rules string
		want             []string
	}{
		"unknown profile": {"h100x8", "[{gpus: {count: 1}, mig: {profiles: [1g, 1g.5gb]}}]",
			[]string{"PartitionProfile p: spec.rules[0].mig.profiles[1]: GPU gpu-0000-1b-00-0: has no profile 1g.5gb; it has " + h100}},
		"unknown static profile": {"h100x8", "[{gpus: {count: 2}, mig: {mode: Static, partitions: [{profile: 1g.5gb}]}}]",
			[]string{"PartitionProfile p: spec.rules[0].mig.partitions: GPUs gpu-0000-1b-00-0, gpu-0000-43-00-0: has no profile 1g.5gb; it has " + h100}},
		"too many": {"h100x8", "[{mig: {mode: Static, partitions: [{profile: 1g, count: 8}]}}]",
			[]string{"spec.rules[0].mig.partitions: GPUs gpu-0000-1b-00-0, gpu-0000-43-00-0, gpu-0000-52-00-0, gpu-0000-61-00-0 and 4 more: 1g.10gb x 8 do not fit: at most 7"}},
		"no MIG": {"l4x4", "[{gpus: {count: 1}, mig: {mode: Static, partitions: [{profile: 1g}]}}]",
			[]string{"spec.rules[0].mig: GPU gpu-0000-17-00-0: NVIDIA L4 does not support MIG: put a rule for it before this one, or select other GPUs"}},
		"MIG mode without MIG":  {"l4x4", "[{mig: {mode: NoPartitions}}]", []string{"NVIDIA L4 does not support MIG"}},
		"memory of unchanged":   {"mi300x8", "[{gpus: {indexes: [0]}, unchanged: true}, {xcp: {memoryPartition: NPS4}}]", []string{"spec.rules[1].xcp.memoryPartition: GPU gpu-0000-05-00-0: is NPS4, and another rule leaves GPUs unchanged, which are in NPS1: all AMD GPUs of a node share the memory mode"}},
		"profiles without MIG":  {"l4x4", "[{mig: {profiles: [1g]}}]", []string{"NVIDIA L4 does not support MIG"}},
		"only parts, of an L4":  {"l4x4", "[{mig: {wholeGPUs: false}}]", []string{"NVIDIA L4 does not support MIG"}},
		"too few GPUs":          {"h100x8", "[{gpus: {count: 9}}]", []string{"spec.rules[0].gpus.count: is 9, and the node has 8 GPUs that fit and that no earlier rule takes"}},
		"too few GPUs left":     {"h100x8", "[{gpus: {indexes: [0, 1]}}, {gpus: {count: 7}}]", []string{"spec.rules[1].gpus.count: is 7, and the node has 6 GPUs"}},
		"no such GPUs":          {"h100x8", "[{gpus: {vendor: amd, count: 1}}]", []string{"spec.rules[0].gpus.count: is 1, and the node has 0 GPUs"}},
		"mode and memory":       {"mi300x8", "[{xcp: {computePartition: SPX, memoryPartition: NPS4}}]", []string{"spec.rules[0].xcp.computePartition: GPUs ", "and 4 more: is SPX, which does not go with memory mode NPS4; QPX, CPX do, or set memoryPartition to NPS1"}},
		"mode and memory now":   {"mi308x8", "[{xcp: {computePartition: SPX}}]", []string{"is SPX, which does not go with memory mode NPS4; CPX does, or set memoryPartition to NPS1"}},
		"mode of another chip":  {"mi300x8", "[{xcp: {computePartition: TPX}}]", []string{"is TPX, which does not go with memory mode NPS1; SPX, DPX, QPX, CPX do, and the GPU has no TPX"}},
		"memory mode":           {"mi300a4", "[{xcp: {memoryPartition: NPS4}}]", []string{"spec.rules[0].xcp.memoryPartition: GPUs gpu-0000-01-00-0, gpu-0001-01-00-0, gpu-0002-01-00-0, gpu-0003-01-00-0: is NPS4, which the GPU does not have; it has NPS1"}},
		"two memory modes":      {"mi300x8", "[{gpus: {count: 1}, xcp: {memoryPartition: NPS4}}, {gpus: {vendor: amd}, xcp: {memoryPartition: NPS1}}]", []string{"spec.rules[1].xcp.memoryPartition: is NPS1, and spec.rules[0].xcp.memoryPartition is NPS4: all AMD GPUs of a node share the memory mode"}},
		"memory of all GPUs":    {"mi300x8", "[{gpus: {count: 1}, xcp: {memoryPartition: NPS4}}, {gpus: {vendor: amd}, xcp: {computePartition: DPX}}]", []string{"spec.rules[1].xcp.computePartition: GPUs", "is DPX, which does not go with memory mode NPS4; QPX, CPX do, or set memoryPartition to NPS1 or NPS2"}},
		"replica of nothing":    {"mi300x8", "[{gpus: {count: 1}, extendedResource: {device: GPUReplica}, xcp: {computePartition: CPX}}]", []string{"spec.rules[0].extendedResource.device: GPU gpu-0000-05-00-0: is GPUReplica, a share of the whole GPU, which the rule does not offer"}},
		"resource of nothing":   {"h100x8", "[{gpus: {count: 1}, extendedResource: {device: Partition, profile: 1g.10gb}, mig: {mode: Static, partitions: [{profile: 7g}]}}]", []string{"extendedResource.profile: GPU gpu-0000-1b-00-0: is 1g.10gb, which the rule does not offer"}},
		"resource, not allowed": {"h100x8", "[{gpus: {count: 1}, extendedResource: {device: Partition, profile: 1g.10gb}, mig: {profiles: [2g]}}]", []string{"is 1g.10gb, which the rule does not offer"}},
		"resource of a mode":    {"mi300x8", "[{gpus: {count: 1}, extendedResource: {device: Partition, profile: dpx}, xcp: {computePartition: CPX}}]", []string{"is dpx, which the rule does not offer"}},
		"all at once": {"h100x2-mi300x2", "[{mig: {mode: Static, partitions: [{profile: 1g, count: 9}]}, xcp: {computePartition: TPX}}, {gpus: {count: 3}}]",
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			rules := rulesOf(t, tt.rules)
			if tt.want == nil { // a rule after one for all GPUs is refused before
				rules[0].GPUs = &v1beta1.GPUSelector{ProductNames: []string{"*"}}
				tt.want = []string{"spec.rules[0].mig.partitions: ", "spec.rules[0].xcp.computePartition: ", "spec.rules[1].gpus.count: is 3, and the node has 0"}
			}
			s, err := FromRules("p", rules)
			require.NoError(t, err)
			got, err := s.Resolve(machine(t, tt.inventory), nil)
			require.Error(t, err)
			assert.Nil(t, got)
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
}

// A GPU that cannot be partitioned beside those that can.
func TestAMDGPUWithoutModes(t *testing.T) {
	inv, err := models.ParseInventory([]byte("gpus: [{model: MI210}, {model: MI300X}]"))
	require.NoError(t, err)
	gpus := inv.Hardware("node")
	got, err := fromRules(t, "[{gpus: {productNames: ['*MI300*']}, xcp: {computePartition: CPX, memoryPartition: NPS4}}, {xcp: {computePartition: SPX}}]").Resolve(gpus, nil)
	require.NoError(t, err)
	for _, g := range gpus {
		want := "CPXNPS4"
		if len(g.Modes) == 0 {
			want = ""
		}
		assert.Equal(t, want, spell(got[g.PCIAddress].Layout))
	}
	for rule, want := range map[string]string{
		"[{xcp: {computePartition: CPX}}]":             "spec.rules[0].xcp.computePartition: GPU gpu-0000-11-00-0: is CPX, and AMD Instinct MI210 cannot be partitioned",
		"[{xcp: {memoryPartition: NPS1}}]":             "spec.rules[0].xcp.memoryPartition: GPU gpu-0000-11-00-0: is NPS1, and AMD Instinct MI210 has no memory modes",
		"[{xcp: {computePartition: SPX}}]":             "",
		"[{sharing: {partitions: {profiles: [cpx]}}}]": "",
	} {
		_, err := fromRules(t, rule).Resolve(gpus, nil)
		if want == "" {
			require.NoError(t, err, rule)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// Another GPU's memory mode is not what this one can have.
func TestMemoryModeThatOneGPULacks(t *testing.T) {
	inv, err := models.ParseInventory([]byte("gpus: [{model: MI300A}, {model: MI300X}]"))
	require.NoError(t, err)
	_, err = fromRules(t, "[{gpus: {productNames: ['*MI300X*']}, xcp: {memoryPartition: NPS4}}]").Resolve(inv.Hardware("node"), nil)
	require.ErrorContains(t, err, "spec.rules[0].xcp.memoryPartition: GPU gpu-0000-11-00-0: is NPS4, all AMD GPUs of a node share the memory mode, and this one has NPS1")
}

func TestOffers(t *testing.T) {
	h100, mi300 := machine(t, "h100x8")[0], machine(t, "mi300x8")[0]
	for name, tt := range map[string]struct {
		gpu   gpu.GPU
		rule  string
		whole bool
		// parts are the profiles of the partitions that are offered, static those
		// that are offered at one place only.
		parts []string
	}{
		"nothing said": {h100, "{}", true, MIGProfiles(&h100)},
		"dynamic":      {h100, "{mig: {}}", true, MIGProfiles(&h100)},
		"allowed":      {h100, "{mig: {profiles: [1g, 2g]}}", true, []string{"1g.10gb", "2g.20gb"}},
		"no whole":     {h100, "{mig: {wholeGPUs: false, profiles: [1g]}}", false, []string{"1g.10gb"}},
		"off":          {h100, "{mig: {mode: Disabled}}", true, nil},
		"static":       {h100, "{mig: {mode: Static, partitions: [{profile: 3g, count: 1}]}}", false, []string{"3g.40gb"}},
		"AMD":          {mi300, "{}", true, []string{"cpx", "qpx", "dpx"}},
		"SPX":          {mi300, "{xcp: {computePartition: SPX}}", true, nil},
		"CPX":          {mi300, "{xcp: {computePartition: CPX}}", false, []string{"cpx"}},
		"NPS1":         {mi300, "{xcp: {memoryPartition: NPS1}}", true, []string{"cpx", "qpx", "dpx"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fromRules(t, "["+tt.rule+"]").Resolve([]gpu.GPU{tt.gpu}, nil)
			require.NoError(t, err)
			layout := got[tt.gpu.PCIAddress].Layout
			var parts []string
			offered := 0
			for _, p := range tt.gpu.Placements {
				for _, by := range gpu.Bases() {
					assert.Equal(t, layout.Offers(p), layout.Offers(gpu.ShareOf(p, by, gpu.Sharing{})), "shares follow")
				}
				switch {
				case p.Type == gpu.TypeGPU:
					assert.Equal(t, tt.whole, layout.Offers(p))
				case layout.Offers(p):
					offered++
					if !slices.Contains(parts, p.Profile) {
						parts = append(parts, p.Profile)
					}
				}
			}
			assert.Equal(t, tt.parts, parts)
			if layout.Partitioning == PartitioningStatic {
				assert.Equal(t, len(layout.Static), offered)
			}
		})
	}
}

// Rules that come from the API server are judged as those of a file are.
func TestFromRules(t *testing.T) {
	s, err := FromRules("training", rulesOf(t, "[{sharing: {replicas: 2}}]"))
	require.NoError(t, err)
	assert.Equal(t, "PartitionProfile training", s.Profile)
	assert.Equal(t, "training", s.For(&h100).Profile)

	_, err = FromRules("training", rulesOf(t, "[{sharing: {replicas: 0}}, {mig: {mode: Static}}]"))
	require.EqualError(t, err, "PartitionProfile training: spec.rules[0].sharing.replicas: is 0, it can be 1 to 1000; "+
		"spec.rules[1]: holds for no GPU, because the rule before it selects every GPU; spec.rules[1].mig.partitions: is missing: mode Static makes the partitions that it names")

	s, err = FromRules("", nil)
	require.NoError(t, err)
	assert.Equal(t, Unset(), s)
}

// A profile fits GPUs that can have it and of which it says something.
func TestFits(t *testing.T) {
	h100s, l4s := machine(t, "h100x8"), machine(t, "l4x4")
	for rules, want := range map[string][2]bool{ // on H100, on L4
		"[]":                                          {true, true},
		"[{mig: {profiles: [1g]}}]":                   {true, false},
		"[{gpus: {productNames: [NVIDIA L4]}}]":       {false, true},
		"[{gpus: {vendor: amd}, xcp: {}}]":            {false, false},
		"[{unchanged: true}]":                         {false, false},
		"[{gpus: {indexes: [0]}}, {unchanged: true}]": {true, true},
		"[{mig: {mode: Static, partitions: [{profile: 7g, count: 2}]}}]": {false, false},
	} {
		p := fromRules(t, rules)
		assert.Equal(t, want, [2]bool{p.Fits(h100s), p.Fits(l4s)}, rules)
	}
	assert.False(t, fromRules(t, "[{gpus: {indexes: [0]}}]").Fits(nil))
	both := machine(t, "h100x2-mi300x2")[:2]
	slices.Reverse(both)
	assert.True(t, fromRules(t, "[{gpus: {count: 1}, unchanged: true}, {gpus: {vendor: amd}}]").Fits(both), "GPUs are counted in PCI order")
}
