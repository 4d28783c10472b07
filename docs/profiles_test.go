package docs_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// The tables of profiles and modes are the project's own tables of models.
func TestModels(t *testing.T) {
	generated(t, "reference/models.md", "mig-profiles", profiles())
	generated(t, "reference/models.md", "no-mig", plain())
	generated(t, "reference/models.md", "amd-modes", modes(t))
}

// profiles has a row for each model, and the boards that have the same profiles.
func profiles() string {
	boards := map[string]string{}
	for _, key := range models.NVIDIAModels() {
		if m, _ := models.NVIDIAModelByKey(key); m.ProfilesOf != nil {
			boards[m.ProfilesOf.Model] += ", `" + key + "`"
		}
	}
	var rows [][]string
	for _, key := range models.NVIDIAModels() {
		model, _ := models.NVIDIAModelByKey(key)
		if !model.HasMIG() || model.ProfilesOf != nil {
			continue
		}
		all := slices.Clone(model.Profiles)
		slices.SortStableFunc(all, func(a, b models.Profile) int {
			return cmp.Or(a.Size-b.Size, a.ComputeSlices-b.ComputeSlices)
		})
		var lines []string
		for _, p := range all {
			note := ""
			if p.Confidence == "derived" {
				note = " *"
			}
			memory := gib(p.MemoryMiB)
			for _, other := range p.OtherMemoryMiB {
				memory += " or " + gib(other)
			}
			lines = append(lines, fmt.Sprintf("`%s`%s: %s GiB, %d SMs, ×%d", p.Name, note, memory, p.Multiprocessors, p.MaxInstances))
		}
		rows = append(rows, []string{"`" + key + "`" + boards[key], strings.Join(lines, "<br>")})
	}
	return table([]string{"model", "profiles"}, rows)
}

func gib(mib uint64) string { return fmt.Sprintf("%.1f", float64(mib)/1024) }

// plain lists the NVIDIA models without MIG.
func plain() string {
	var keys []string
	for _, key := range models.NVIDIAModels() {
		if m, _ := models.NVIDIAModelByKey(key); !m.HasMIG() {
			keys = append(keys, "`"+key+"`")
		}
	}
	return strings.Join(keys, ", ")
}

// modes has a row for each AMD model, with its modes as the model's GPUs publish them under
// NPS1.
func modes(t *testing.T) string {
	t.Helper()
	var rows [][]string
	for _, key := range models.AMDModels() {
		if model, _ := models.AMDModelByKey(key); !model.HasPartitions() {
			rows = append(rows, []string{"`" + key + "`", "no modes"})
			continue
		}
		inv, err := models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, memoryMode: NPS1}]", key))
		require.NoError(t, err)
		g := inv.Hardware("node")[0]
		var lines []string
		for _, p := range slices.Backward(g.Placements) {
			if p.Start > 0 {
				continue
			}
			count := 0
			for _, other := range g.Placements {
				if other.Profile == p.Profile {
					count++
				}
			}
			lines = append(lines, fmt.Sprintf("%s: %d MiB, %d CUs, ×%d", strings.ToUpper(p.Profile), p.Memory>>20, p.ComputeUnits, count))
		}
		rows = append(rows, []string{"`" + key + "`", strings.Join(lines, "<br>")})
	}
	return table([]string{"model", "partitions in each mode"}, rows)
}

// The class that a page names for a profile is that of the chart.
func TestSlugs(t *testing.T) {
	for profile, slug := range map[string]string{"1g.10gb": "1g-10gb", "1g.10gb+me": "1g-10gb-plus-me", "1g.24gb-me": "1g-24gb-no-me", "1g.24gb+me.all": "1g-24gb-plus-me-all"} {
		require.Equal(t, slug, gpu.ProfileSlug(profile))
		require.Contains(t, read(t, "reference/devices.md"), fmt.Sprintf("| `%s` | `gpu-mig-%s.tranche.dev` |", profile, slug))
	}
}
