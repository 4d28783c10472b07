package formats

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// The tests of this file compare what a converted profile makes of the GPUs of a machine with what
// the original tool makes of them. The tools are modelled by their own rules, on the values of the
// file; nothing of the readers is used.

// geometry says how each GPU of a machine is partitioned, by PCI address: "off", "on" (MIG mode
// without partitions), "1g.10gb*7", "CPX NPS1", or "unchanged".
type geometry map[string]string

const unchanged = "unchanged"

// ours is the geometry by a converted profile.
func ours(t *testing.T, p *Profile, gpus []gpu.GPU) (geometry, error) {
	t.Helper()
	parsed, err := profile.FromRules(p.Name, p.Spec.Rules)
	require.NoError(t, err)
	desired, err := parsed.Resolve(gpus, nil)
	if err != nil {
		return nil, err
	}
	found := geometry{}
	for address, d := range desired {
		switch l := d.Layout; {
		case d.Unchanged:
			found[address] = unchanged
		case l.Compute != "":
			found[address] = l.Compute + " " + l.Memory
		case l.Partitioning == profile.PartitioningOff:
			found[address] = "off"
		case l.Partitioning == profile.PartitioningStatic:
			counts := map[string]int{}
			for _, p := range l.Static {
				counts[p.Profile]++
			}
			found[address] = spell(counts)
		default:
			// Without MIG, and selected by its index with mig-enabled: false.
			found[address] = unchanged
		}
	}
	return found, nil
}

func spell(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s*%d", name, counts[name]))
	}
	return cmp.Or(strings.Join(parts, " "), "on")
}

// capable reports whether a GPU can do MIG.
func capable(g gpu.GPU) bool {
	on := g.WithMIG(gpu.MIGOn)
	return slices.ContainsFunc(on.Placements, func(p gpu.Placement) bool { return p.Type == gpu.TypeMIG })
}

// migParted is the geometry by mig-parted: it walks over the entries and, for each, over the GPUs,
// once for the modes and once for the partitions.
func migParted(entries []any, gpus []gpu.GPU) (geometry, error) {
	found, modes := geometry{}, map[string]bool{}
	for _, g := range gpus {
		found[g.PCIAddress] = unchanged
	}
	walk := func(visit func(entry map[string]any, g gpu.GPU) error) error {
		for _, e := range entries {
			entry := e.(map[string]any)
			for i, g := range gpus {
				if !migPartedSelects(entry, i, g) {
					continue
				}
				if err := visit(entry, g); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := walk(func(entry map[string]any, g gpu.GPU) error {
		enabled := entry["mig-enabled"].(bool)
		switch {
		case !capable(g) && (entry["devices"] == "all" || !enabled):
			return nil
		case !capable(g):
			return errors.New("MIG mode of a GPU without MIG")
		}
		modes[g.PCIAddress] = enabled
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, walk(func(entry map[string]any, g gpu.GPU) error {
		enabled := entry["mig-enabled"].(bool)
		switch {
		case !capable(g):
			return nil
		case modes[g.PCIAddress] != enabled:
			return errTwoModes
		case !enabled:
			found[g.PCIAddress] = "off"
			return nil
		}
		counts := map[string]int{}
		wanted, _ := entry["mig-devices"].(map[string]any)
		for name, n := range wanted {
			if n := int(n.(float64)); n > 0 {
				// 3c.3g.40gb, all compute slices of the partition, is 3g.40gb.
				if c, rest, ok := strings.Cut(name, "c."); ok && strings.HasPrefix(rest, c+"g.") {
					name = rest
				}
				counts[name] += n
			}
		}
		if !fits(g, counts) {
			return errors.New("partitions that the GPU does not have")
		}
		found[g.PCIAddress] = spell(counts)
		return nil
	})
}

// errTwoModes: two entries have different modes for a GPU.
var errTwoModes = errors.New("another mode than that of a later entry")

// migPartedSelects reports whether an entry selects the GPU with an index.
func migPartedSelects(entry map[string]any, index int, g gpu.GPU) bool {
	var filters []string
	switch f := entry["device-filter"].(type) {
	case string:
		filters = append(filters, f)
	case []any:
		for _, f := range f {
			filters = append(filters, f.(string))
		}
	}
	number := func(text string) uint64 { n, _ := strconv.ParseUint(text, 0, 32); return n }
	if len(filters) > 0 && !slices.ContainsFunc(filters, func(f string) bool {
		device, subsystem, named := strings.Cut(f, ":")
		return number(device) == number(g.PCIID) && (!named || number(subsystem) == number(g.PCISubsystemID))
	}) {
		return false
	}
	devices, ok := entry["devices"].([]any)
	return !ok || slices.Contains(devices, any(float64(index)))
}

// fits tries all positions of partitions.
func fits(g gpu.GPU, counts map[string]int) bool {
	on := g.WithMIG(gpu.MIGOn)
	var wanted []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		wanted = append(wanted, slices.Repeat([]string{name}, counts[name])...)
	}
	var try func(i, from int, used gpu.Counters) bool
	try = func(i, from int, used gpu.Counters) bool {
		if i == len(wanted) {
			return true
		}
		if i > 0 && wanted[i] != wanted[i-1] {
			from = 0
		}
		for j := from; j < len(on.Placements); j++ {
			p := on.Placements[j]
			if p.Type != gpu.TypeMIG || p.Profile != wanted[i] {
				continue
			}
			sum := maps.Clone(used)
			sum.Add(p.Consumes)
			if sum.Exceeds(on.Counters) == "" && try(i+1, j+1, sum) {
				return true
			}
		}
		return false
	}
	return try(0, 0, gpu.Counters{})
}

// machines are the GPUs of the inventories of a vendor, each in PCI order.
func machines(t *testing.T, vendor gpu.Vendor) map[string][]gpu.GPU {
	found := map[string][]gpu.GPU{}
	for _, name := range models.InventoryNames() {
		inventory, err := models.LoadInventory(name)
		require.NoError(t, err)
		gpus := slices.DeleteFunc(inventory.Hardware("node"), func(g gpu.GPU) bool { return g.Vendor != vendor })
		gpu.SortGPUs(gpus)
		if len(gpus) > 0 {
			found[name] = gpus
		}
	}
	return found
}

// values are those of a file, or of the only file in a ConfigMap.
func values(t *testing.T, data []byte) map[string]any {
	var found map[string]any
	require.NoError(t, yaml.Unmarshal(data, &found))
	if inner, ok := found["data"].(map[string]any); ok && len(inner) == 1 {
		for _, text := range inner {
			return values(t, []byte(text.(string)))
		}
	}
	return found
}

func TestMIGPartedRoundTrip(t *testing.T) {
	fixtures := append(publicFiles(t), "testdata/migparted/entries.yaml")
	configurations, applied := 0, 0
	nodes := machines(t, gpu.NVIDIA)
	for _, file := range fixtures {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		configs, ok := values(t, data)["mig-configs"].(map[string]any)
		if !ok {
			continue
		}
		documents, err := Read(file, data)
		require.NoError(t, err)
		require.Len(t, documents, 1)
		for _, p := range documents[0].Profiles {
			configurations++
			if p.Err != nil {
				continue // TestPublicFiles says why
			}
			for machine, gpus := range nodes {
				want, wantErr := migParted(configs[p.Original].([]any), gpus)
				got, err := ours(t, &p, gpus)
				if errors.Is(wantErr, errTwoModes) && len(p.Notes) > 0 {
					continue // a note says that the last entry holds
				}
				if wantErr != nil {
					assert.Error(t, err, "%s: %s on %s: mig-parted refuses: %v", file, p.Original, machine, wantErr)
					continue
				}
				applied++
				assert.NoError(t, err, "%s: %s on %s", file, p.Original, machine)
				assert.Equal(t, want, got, "%s: %s on %s", file, p.Original, machine)
			}
		}
	}
	assert.Greater(t, configurations, 150)
	assert.Greater(t, applied, 500)
}

// dcmModes are the modes that the device config manager knows.
var dcmModes = map[string][]string{"compute": {"SPX", "DPX", "QPX", "CPX"}, "memory": {"NPS1", "NPS2", "NPS4", "NPS8"}}

// deviceConfigManager is the geometry by the device config manager: it gives the GPUs that are not
// skipped, in the order of their indexes, to the entries.
func deviceConfigManager(in map[string]any, gpus []gpu.GPU) (geometry, error) {
	found, usable := geometry{}, []gpu.GPU{}
	var skipped []any
	if filter, ok := in["skippedGPUs"].(map[string]any); ok {
		skipped, _ = filter["ids"].([]any)
	}
	for i, g := range gpus {
		found[g.PCIAddress] = unchanged
		if !slices.Contains(skipped, any(float64(i))) {
			usable = append(usable, g)
		}
	}
	entries := in["profiles"].([]any)
	sum, rests := 0, 0
	number := func(e any) int { n, _ := e.(map[string]any)["numGPUsAssigned"].(float64); return int(n) }
	for _, e := range entries {
		if sum += number(e); number(e) == 0 {
			rests++
		}
	}
	if rests > 1 || sum > len(usable) || rests == 0 && sum < len(usable) || len(skipped)+len(usable) != len(gpus) {
		return nil, errors.New("the numbers do not add up")
	}
	memory, rest := entries[0].(map[string]any)["memoryPartition"], len(usable)-sum
	for _, e := range entries {
		e := e.(map[string]any)
		n := number(e)
		if n == 0 {
			n = rest
		}
		compute, _ := e["computePartition"].(string)
		mode, _ := e["memoryPartition"].(string)
		if !slices.Contains(dcmModes["compute"], compute) || !slices.Contains(dcmModes["memory"], mode) || mode != memory {
			return nil, errors.New("no such modes")
		}
		for _, g := range usable[:n] {
			// What the hardware refuses: it has one memory mode for all GPUs.
			if !slices.Contains(g.Modes[mode], compute) || len(skipped) > 0 && mode != g.MemoryMode {
				return nil, errors.New("modes that the GPU does not have")
			}
			found[g.PCIAddress] = compute + " " + mode
		}
		usable = usable[n:]
	}
	return found, nil
}

func TestDeviceConfigManagerRoundTrip(t *testing.T) {
	applied := 0
	nodes := machines(t, gpu.AMD)
	for _, file := range append(publicFiles(t), "testdata/dcm-eight.json") {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		profiles, ok := values(t, data)["gpu-config-profiles"].(map[string]any)
		if !ok {
			continue
		}
		documents, err := Read(file, data)
		require.NoError(t, err)
		require.Len(t, documents, 1)
		for _, p := range documents[0].Profiles {
			for machine, gpus := range nodes {
				want, err := deviceConfigManager(profiles[p.Original].(map[string]any), gpus)
				if err != nil {
					// Numbers that are too small for the node leave the other GPUs as they are.
					continue
				}
				applied++
				require.NoError(t, p.Err, p.Original)
				got, err := ours(t, &p, gpus)
				assert.NoError(t, err, "%s: %s on %s", file, p.Original, machine)
				if len(p.Notes) > 0 {
					// The rest is not the last entry: other GPUs get the same modes.
					assert.ElementsMatch(t, slices.Collect(maps.Values(want)), slices.Collect(maps.Values(got)), "%s: %s on %s", file, p.Original, machine)
					continue
				}
				assert.Equal(t, want, got, "%s: %s on %s", file, p.Original, machine)
			}
		}
	}
	assert.Greater(t, applied, 20)
}

// Kaiwo's own profiles put all GPUs into one mode.
func TestKaiwoRoundTrip(t *testing.T) {
	gpus := machines(t, gpu.AMD)["mi300x8"]
	for name, want := range map[string]string{"cpx": "CPX NPS4", "spx": "SPX NPS1"} {
		documents, err := Read("f", []byte("kind: KaiwoNode\nmetadata: {name: node-a}\nspec: {partitioning: {enabled: true, profile: "+name+"}}\n"))
		require.NoError(t, err)
		got, err := ours(t, &documents[0].Profiles[0], gpus)
		require.NoError(t, err)
		for _, g := range gpus {
			assert.Equal(t, want, got[g.PCIAddress])
		}
	}
}
