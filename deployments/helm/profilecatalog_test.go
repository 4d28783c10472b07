package helm_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/test/golden"
)

const profilesDir = chart + "/files/profiles"

// machines has a machine with one GPU for each model, and the inventories that ship.
var machines = sync.OnceValue(func() map[string][]gpu.GPU {
	all := map[string][]gpu.GPU{}
	add := func(name string, inv *models.Inventory, err error) {
		if err != nil {
			panic(err)
		}
		all[name] = inv.Hardware("node")
	}
	for _, name := range models.InventoryNames() {
		inv, err := models.LoadInventory(name)
		add(name, inv, err)
	}
	for _, model := range models.NVIDIAModels() {
		inv, err := models.ParseInventory([]byte("gpus: [{model: " + model + "}]"))
		add(model, inv, err)
	}
	return all
})

// profileCatalog are the specs of the profiles that come with the chart, by name: some by
// hand, and one for each MIG profile and each pair of AMD's modes of machines.
func profileCatalog(t *testing.T) map[string]string {
	t.Helper()
	profiles := map[string]string{
		"whole":        "  rules:\n  - mig:\n      mode: Disabled\n    xcp:\n      computePartition: SPX\n",
		"all-disabled": "  rules:\n  - gpus:\n      migSupport: Capable\n    mig:\n      mode: Disabled\n",
		"all-enabled":  "  rules:\n  - gpus:\n      migSupport: Capable\n    mig:\n      mode: NoPartitions\n",
		// What nobody says anything of, said.
		"dynamic": "  rules:\n  - mig:\n      mode: Dynamic\n",
		"all-balanced": "  rules:\n" +
			"  # GPUs of two slices: mig-parted leaves them as they are.\n" +
			"  - gpus:\n      productNames: [\"*RTX PRO 4500*\", \"*RTX PRO 5000*\"]\n    unchanged: true\n" +
			"  # GPUs of four slices.\n" +
			"  - gpus:\n      productNames: [\"NVIDIA A30*\", \"*RTX PRO 6000*\"]\n" + static("1g", 2, "2g", 1) +
			"  # GPUs of seven.\n" +
			"  - gpus:\n      migSupport: Capable\n" + static("1g", 2, "2g", 1, "3g", 1),
		"mps-10": "  rules:\n  - gpus:\n      vendor: nvidia\n    sharing:\n      strategy: MPS\n      replicas: 10\n    extendedResource:\n      device: GPUReplica\n",
	}
	for _, n := range []int{2, 4, 10} {
		profiles[fmt.Sprintf("time-sliced-%d", n)] = fmt.Sprintf("  rules:\n  - sharing:\n      strategy: TimeSlicing\n      replicas: %d\n    extendedResource:\n      device: GPUReplica\n", n)
	}
	for _, gpus := range machines() {
		for _, g := range gpus {
			for _, mig := range profile.MIGProfiles(&g) {
				// As mig-parted names it, and so that it can be a name.
				profiles["all-"+strings.ReplaceAll(mig, "+", ".")] = "  rules:\n  - gpus:\n      migSupport: Capable\n" + static(mig, 0) + "    extendedResource:\n      device: Partition\n      profile: " + mig + "\n"
			}
			for memory, modes := range g.Modes {
				for _, mode := range modes {
					profiles[strings.ToLower(mode)] = amd(mode, "")
					profiles[strings.ToLower(mode+"-"+memory)] = amd(mode, memory)
				}
			}
		}
	}
	return profiles
}

// static is a list of partitions: profile, count, profile, count … Without a count
// the profile fills the GPU.
func static(parts ...any) string {
	text := "    mig:\n      mode: Static\n      partitions:\n"
	for part := range slices.Chunk(parts, 2) {
		text += fmt.Sprintf("      - profile: %s\n", part[0])
		if part[1] != 0 {
			text += fmt.Sprintf("        count: %d\n", part[1])
		}
	}
	return text
}

func amd(compute, memory string) string {
	text := "  rules:\n  - gpus:\n      vendor: amd\n    xcp:\n      computePartition: " + compute + "\n"
	if memory != "" {
		text += "      memoryPartition: " + memory + "\n"
	}
	if compute != "SPX" {
		// As AMD's device plugin does by default.
		text += "    extendedResource:\n      device: Partition\n      profile: " + strings.ToLower(compute) + "\n"
	}
	return text
}

// The files are those that the inventories ask for; -update writes them.
func TestCatalogIsThatOfTheInventories(t *testing.T) {
	var wanted []string
	for name, spec := range profileCatalog(t) {
		file := filepath.Join(profilesDir, name+".yaml")
		golden.Equal(t, file, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\nspec:\n%s", v1beta1.GroupVersion, v1beta1.ProfileKind, name, spec))
		wanted = append(wanted, file)
	}
	files, err := filepath.Glob(profilesDir + "/*")
	require.NoError(t, err)
	assert.ElementsMatch(t, wanted, files, "remove those that no inventory asks for")
	for _, name := range []string{"whole", "dynamic", "all-balanced", "all-1g.10gb", "all-1g.10gb.me", "all-1g.24gb-me", "all-7g.80gb",
		"spx", "dpx", "tpx", "qpx", "cpx", "spx-nps1", "dpx-nps2", "qpx-nps4", "cpx-nps1", "cpx-nps4", "time-sliced-10", "mps-10"} {
		assert.Contains(t, files, filepath.Join(profilesDir, name+".yaml"))
	}
}

// Each is one that the API server takes by its name, and that fits the GPUs of an
// inventory; all GPUs that it names follow it.
func TestCatalogFits(t *testing.T) {
	for name := range profileCatalog(t) {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, validation.IsDNS1123Subdomain(name))
			assert.Empty(t, validation.IsValidLabelValue(name))
			file := filepath.Join(profilesDir, name+".yaml")
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			parsed, err := profile.Parse(file, content)
			require.NoError(t, err)
			var object v1beta1.PartitionProfile
			require.NoError(t, strict.Decode(file, content, &object))
			assert.Equal(t, name, object.Name)
			same, err := profile.FromRules(name, object.Spec.Rules)
			require.NoError(t, err)
			assert.Equal(t, parsed, same)

			var fits []string
			for machine, gpus := range machines() {
				resolved, err := parsed.Resolve(gpus, nil)
				selects := slices.ContainsFunc(slices.Collect(maps.Values(resolved)), func(c profile.Desired) bool { return c.Profile == name })
				if err != nil || !selects {
					continue
				}
				for i := range gpus {
					g, held := resolved[gpus[i].PCIAddress], false
					for _, p := range gpus[i].WithMIG(gpu.MIGOn).Placements {
						held = held || g.Layout.Offers(p)
					}
					// Under another memory mode the GPU will have other devices.
					asItIs := g.Layout.Memory == "" || g.Layout.Memory == gpus[i].MemoryMode
					assert.True(t, held || !asItIs || g.Layout.Partitioning == profile.PartitioningOff || name == "all-enabled", "%s of %s offers something", gpus[i].Name(), machine)
				}
				fits = append(fits, machine)
			}
			assert.NotEmpty(t, fits)
		})
	}
}

// all-balanced is what mig-parted makes of each model.
func TestAllBalanced(t *testing.T) {
	content, err := os.ReadFile(profilesDir + "/all-balanced.yaml")
	require.NoError(t, err)
	parsed, err := profile.Parse("all-balanced", content)
	require.NoError(t, err)
	for machine, want := range map[string]map[string]int{
		"h100x8":            {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
		"a100-40x8-mig-off": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
		"b200x8":            {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
		"a30x4":             {"1g.6gb": 2, "2g.12gb": 1},
		"rtxpro6000x4":      {"1g.24gb": 2, "2g.48gb": 1},
		"A800-40GB":         {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
		"H20-96GB":          {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
		"H800-94GB-NVL":     {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
		"H200-141GB-NVL":    {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
		"GH200-144GB":       {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
		"GB200-186GB":       {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
		"B300-269GB":        {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
		"GB300-278GB":       {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},
		"l4x4":              {}, "RTX-PRO-5000-Blackwell-48GB": {},
	} {
		resolved, err := parsed.Resolve(machines()[machine], nil)
		require.NoError(t, err)
		for _, g := range resolved {
			got := map[string]int{}
			for _, p := range g.Layout.Static {
				got[p.Profile]++
			}
			assert.Equal(t, want, got, machine)
		}
	}
}

// The chart has a profile for each configuration of mig-parted's default file.
func TestProfilesOfMIGParted(t *testing.T) {
	content, err := os.ReadFile("testdata/mig-parted-profiles.txt")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(content), "\n")
	names := strings.Fields(list)
	require.Len(t, names, 81)
	for _, name := range names {
		assert.FileExists(t, filepath.Join(profilesDir, name+".yaml"))
	}
}

// The ConfigMap has the files, without those that the administrator has a profile of
// the same name for.
func TestCatalogInTheChart(t *testing.T) {
	data := func(args ...string) map[string]string {
		for _, m := range all[*corev1.ConfigMap](decode(t, render(t, chart, args...))) {
			if m.Name == "tranche-profile-catalog" {
				return m.Data
			}
		}
		t.Fatal("there is no ConfigMap")
		return nil
	}
	every := data()
	assert.Len(t, every, len(profileCatalog(t)))
	for name, content := range every {
		want, err := os.ReadFile(filepath.Join(profilesDir, name))
		require.NoError(t, err)
		assert.Equal(t, strings.TrimSpace(string(want)), strings.TrimSpace(content))
	}
	own := data("--set", `partitionProfiles.all-1g\.10gb.rules[0].extendedResource.device=GPUReplica`)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(every)), append(slices.Collect(maps.Keys(own)), "all-1g.10gb.yaml"))
	assert.Empty(t, data("--set", "profileCatalog.enabled=false"))
}
