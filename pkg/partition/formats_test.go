package partition_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/short"
)

// readFormat converts a file of another project.
func readFormat(t *testing.T, path string) ([]formats.Profile, map[string]any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	documents, err := formats.Read(path, data)
	require.NoError(t, err)
	require.Len(t, documents, 1)
	var values map[string]any
	require.NoError(t, yaml.Unmarshal(data, &values))
	return documents[0].Profiles, values
}

// migPartedMakes is what mig-parted makes of a GPU: the last entry whose filter has the GPU's ID
// holds. It returns the numbers of partitions by profile; ok is false if no entry selects the GPU.
// Every entry of its default file is for all devices.
func migPartedMakes(t *testing.T, entries []any, id string) (enabled bool, counts map[string]int, ok bool) {
	t.Helper()
	for _, e := range entries {
		entry := e.(map[string]any)
		require.Equal(t, "all", entry["devices"])
		filter, filtered := entry["device-filter"]
		if list, isList := filter.([]any); filtered && isList && !slices.Contains(list, any(id)) || filtered && !isList && filter != id {
			continue
		}
		enabled, counts, ok = entry["mig-enabled"].(bool), map[string]int{}, true
		devices, _ := entry["mig-devices"].(map[string]any)
		for name, n := range devices {
			counts[name] = int(n.(float64))
		}
	}
	return enabled, counts, ok
}

// TestMIGPartedDefaults: on each model, each configuration of mig-parted's default file ends in the
// partitions that mig-parted would make, or is refused where the GPU cannot have them. One that
// selects no GPU changes nothing.
func TestMIGPartedDefaults(t *testing.T) {
	profiles, values := readFormat(t, "../profile/formats/testdata/public/NVIDIA_mig-parted_deployments_systemd_config-default.yaml")
	configs := values["mig-configs"].(map[string]any)
	require.Len(t, profiles, 81)
	applied := map[string]bool{}
	for _, key := range models.NVIDIAModels() {
		model, _ := models.NVIDIAModelByKey(key)
		if !model.HasMIG() || testing.Short() && key != "A30-24GB" && key != "H100-80GB" {
			continue
		}
		most := map[string]int{}
		for i := range model.Profiles {
			most[model.Profiles[i].Name] = model.Profiles[i].MaxInstances
		}
		t.Run(key, func(t *testing.T) {
			m := nvidiaMachine(t, key, "  migMode: disabled\n")
			for _, p := range profiles {
				require.NoError(t, p.Err)
				if _, filtered := configs[p.Original].([]any)[0].(map[string]any)["device-filter"]; !filtered && model.ProfilesOf != nil {
					continue // as on the model with the same profiles
				}
				wish := ruleWish(p.Name, p.Spec.Rules...)
				enabled, counts, selected := migPartedMakes(t, configs[p.Original].([]any), m.gpus()[0].PCIID)
				before := m.state()
				switch fits := !slices.ContainsFunc(slices.Collect(maps.Keys(counts)), func(name string) bool { return counts[name] > most[name] }); {
				case !selected:
					m.follow(wish)
					require.Equal(t, before, m.state(), p.Original)
					continue
				case !fits:
					require.Equal(t, names.ReasonProfileDoesNotFit, m.node.Plan(t.Context(), wish).Reason, p.Original)
					continue
				}
				m.follow(wish)
				applied[p.Original] = true
				for _, g := range m.gpus() {
					live, err := m.Live(t.Context(), g.PCIAddress)
					require.NoError(t, err)
					got := map[string]int{}
					for _, part := range live {
						if part.Type == gpu.TypeMIG {
							got[part.Profile]++
						}
					}
					require.Equal(t, counts, got, p.Original)
					modes, err := m.Modes(t.Context(), g.PCIAddress)
					require.NoError(t, err)
					require.Equal(t, map[bool]gpu.MIGMode{true: gpu.MIGOn, false: gpu.MIGOff}[enabled], modes.MIG, p.Original)
				}
			}
		})
	}
	var missing []string
	for _, p := range profiles {
		if !applied[p.Original] {
			missing = append(missing, p.Original)
		}
	}
	t.Logf("no model has %d of them: %s", len(missing), strings.Join(missing, ", "))
	assert.Greater(t, len(applied), short.Of(10, 60))
}

// TestDeviceConfigManager: the modes that the device config manager would set on a node with two GPUs.
func TestDeviceConfigManager(t *testing.T) {
	file := t.TempDir() + "/config.json"
	entry := func(compute, memory string, n int) string {
		return `{"computePartition": "` + compute + `", "memoryPartition": "` + memory + `", "numGPUsAssigned": ` + strconv.Itoa(n) + `}`
	}
	require.NoError(t, os.WriteFile(file, []byte(`{"gpu-config-profiles": {
		"a_cpx": {"profiles": [`+entry("CPX", "NPS4", 2)+`]},
		"b_two": {"profiles": [`+entry("CPX", "NPS1", 1)+`, `+entry("DPX", "NPS1", 1)+`]},
		"c_skipped": {"skippedGPUs": {"ids": [0]}, "profiles": [`+entry("SPX", "NPS1", 1)+`]},
		"d_rest": {"profiles": [`+entry("QPX", "NPS1", 1)+`, `+entry("SPX", "NPS1", 0)+`]},
		"e_fewer": {"profiles": [`+entry("CPX", "NPS1", 1)+`]},
		"f_more": {"profiles": [`+entry("SPX", "NPS1", 3)+`]}
	}}`), 0o600))
	profiles, _ := readFormat(t, file)
	m := amdMachine(t, "mi300x8")
	for i, want := range [][]string{
		{"CPX NPS4", "CPX NPS4"},
		{"CPX NPS1", "DPX NPS1"},
		{"CPX NPS1", "SPX NPS1"},
		{"QPX NPS1", "SPX NPS1"},
		{"CPX NPS1", "SPX NPS1"},
	} {
		m.follow(ruleWish(profiles[i].Name, profiles[i].Spec.Rules...))
		assert.Equal(t, want, m.state(), profiles[i].Original)
	}
	last := profiles[5]
	assert.Equal(t, names.ReasonProfileDoesNotFit, m.node.Plan(t.Context(), ruleWish(last.Name, last.Spec.Rules...)).Reason)
}
