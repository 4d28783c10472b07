package docs_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/models"
)

var update = flag.Bool("update", false, "write the table of profiles anew")

// The tables of profiles and modes are the project's own tables of models.
func TestProfilesAreThoseOfTheTable(t *testing.T) {
	generated(t, "choose-a-cut.md", "profiles", profiles())
	generated(t, "amd.md", "modes", modes(t))
}

// generated compares the part of a page between two comments, or writes it.
func generated(t *testing.T, page, what, content string) {
	t.Helper()
	begin := "<!-- " + what + ": go test ./docs -update writes what follows -->\n"
	end := "<!-- end of " + what + " -->"
	text := read(t, page)
	before, rest, found := strings.Cut(text, begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	wanted := before + begin + content + end + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(wanted), 0o644))
		return
	}
	require.Equal(t, wanted, text, "run go test ./docs -update, then read the difference")
}

func profiles() string {
	var b strings.Builder
	for _, key := range models.NVIDIAModels() {
		model, _ := models.NVIDIAModelByKey(key)
		if !model.HasMIG() {
			continue
		}
		fmt.Fprintf(&b, "\n### %s (%s)\n\n| profile | memory | SMs | at most | starts at | decoders / encoders / JPEG / OFA |\n|---|---|---|---|---|---|\n", model.ProductName, key)
		all := slices.Clone(model.Profiles)
		slices.SortStableFunc(all, func(a, b models.Profile) int {
			if a.Size != b.Size {
				return a.Size - b.Size
			}
			return a.ComputeSlices - b.ComputeSlices
		})
		for _, p := range all {
			note := ""
			if p.Confidence == "derived" {
				note = " *"
			}
			e := p.Engines
			fmt.Fprintf(&b, "| `%s`%s | %.1f GiB | %d | %d | %s | %d / %d / %d / %d |\n", p.Name, note, float64(p.MemoryMiB)/1024, p.Multiprocessors, p.MaxInstances,
				numbers(p.Starts), e[models.EngineDecoder], e[models.EngineEncoder], e[models.EngineJPEG], e[models.EngineOFA])
		}
	}
	b.WriteString("\n")
	return b.String()
}

// modes has a row for each AMD model and mode, as the model's cards publish them
// under NPS1.
func modes(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| card | class | partitions | memory of each | compute units of each |\n|---|---|---|---|---|\n")
	for _, key := range models.AMDModels() {
		if model, _ := models.AMDModelByKey(key); !model.HasPartitions() {
			continue
		}
		inv, err := models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, memoryMode: NPS1}]", key))
		require.NoError(t, err)
		card := inv.Cards("node")[0]
		for i, p := range slices.Backward(card.Placements) {
			if p.Start > 0 {
				continue
			}
			count := 0
			for _, other := range card.Placements {
				if other.Profile == p.Profile {
					count++
				}
			}
			name := key
			if i < len(card.Placements)-1 {
				name = "" // once is enough
			}
			fmt.Fprintf(&b, "| %s | `gpu-xcp-%s` | %d | %d MiB | %d |\n", name, p.Profile, count, p.Memory>>20, p.ComputeUnits)
		}
	}
	b.WriteString("\n")
	return b.String()
}

func numbers(all []int) string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}

// The class that a page names for a profile is that of the chart.
func TestSlugs(t *testing.T) {
	for profile, slug := range map[string]string{"1g.10gb": "1g-10gb", "1g.10gb+me": "1g-10gb-me", "1g.24gb-me": "1g-24gb-nome", "1g.24gb+me.all": "1g-24gb-meall"} {
		require.Equal(t, slug, gpu.ProfileSlug(profile))
		require.Contains(t, read(t, "choose-a-cut.md"), fmt.Sprintf("| `%s` | `gpu-mig-%s.tranche.dev` |", profile, slug))
	}
}
