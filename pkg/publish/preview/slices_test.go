package preview_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/publish/preview"
)

func Example() {
	inventory, err := models.LoadInventory("h100x8")
	if err != nil {
		panic(err)
	}
	published, err := preview.Slices(preview.Node{Name: "node", Inventory: inventory})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(published), "slices")
	fmt.Println(published[1].Spec.Devices[0].Name)
	// Output:
	// 9 slices
	// gpu-0000-1b-00-0-mig-1g-10gb-6
}

func inventoryOf(t *testing.T, text string) *models.Inventory {
	t.Helper()
	inventory, err := models.ParseInventory([]byte(text))
	require.NoError(t, err)
	return inventory
}

func profileOf(t *testing.T, rules string) *profile.Profile {
	t.Helper()
	p, err := profile.Parse("profile.yaml", []byte("apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}\nspec: {rules: ["+rules+"]}"))
	require.NoError(t, err)
	return p
}

// devicesOf are the devices of a node, by name.
func devicesOf(t *testing.T, n preview.Node) map[string]resourceapi.Device {
	t.Helper()
	published, err := preview.Slices(n)
	require.NoError(t, err)
	devices := map[string]resourceapi.Device{}
	for _, slice := range published {
		assert.Equal(t, n.Name, slice.Spec.Pool.Name)
		assert.Equal(t, n.Name, *slice.Spec.NodeName)
		assert.EqualValues(t, len(published), slice.Spec.Pool.ResourceSliceCount)
		for _, d := range slice.Spec.Devices {
			devices[d.Name] = d
		}
	}
	return devices
}

// The extended resource is on the devices that the profile says it stands for.
func TestExtendedResources(t *testing.T) {
	inventory := inventoryOf(t, "gpus: [{model: L4-24GB}, {model: MI300X}]")
	serving := func(p *profile.Profile) map[string]string {
		found := map[string]string{}
		n := preview.Node{Name: "node", Inventory: inventory, Profile: p, ExtendedResources: map[gpu.Vendor]string{gpu.NVIDIA: "nvidia.com/gpu"}}
		for name, d := range devicesOf(t, n) {
			if a, ok := d.Attributes["extendedResourceName"]; ok {
				found[name] = *a.StringValue
			}
		}
		return found
	}
	assert.Equal(t, map[string]string{"gpu-0000-11-00-0": "nvidia.com/gpu"}, serving(nil))
	assert.Equal(t, map[string]string{"gpu-0000-11-00-0-fraction-share": "nvidia.com/gpu"}, serving(profileOf(t, "{extendedResource: {device: GPUReplica}}")))
}

// A driver without MPS limits nothing.
func TestWithoutMPS(t *testing.T) {
	isolation := func(inventory string) string {
		devices := devicesOf(t, preview.Node{Name: "node", Inventory: inventoryOf(t, inventory)})
		return *devices["gpu-0000-11-00-0-memory-share"].Attributes["isolation"].StringValue
	}
	assert.Equal(t, "cooperative", isolation("gpus: [{model: L4-24GB}]"))
	assert.Equal(t, "none", isolation("{gpus: [{model: L4-24GB}], mps: false}"))
}

// A profile changes the template, not the inventory.
func TestInventoryStays(t *testing.T) {
	inventory := inventoryOf(t, "gpus: [{model: MI300X}]")
	plain := preview.Node{Name: "node", Inventory: inventory}
	with := plain
	with.Profile = profileOf(t, "{xcp: {computePartition: QPX, memoryPartition: NPS4}, sharing: {wholeGPUs: false}}")
	before := devicesOf(t, plain)
	partitions := devicesOf(t, with)
	delete(partitions, "gpu-0000-11-00-0-monitor")
	assert.Len(t, partitions, 4)
	for _, d := range partitions {
		assert.Equal(t, "NPS4", *d.Attributes["memoryPartition"].StringValue)
	}
	assert.Equal(t, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(devicesOf(t, plain))))
	assert.Equal(t, before, devicesOf(t, plain))
}

func TestProfileThatDoesNotFit(t *testing.T) {
	_, err := preview.Slices(preview.Node{
		Name: "node", Inventory: inventoryOf(t, "gpus: [{model: L4-24GB}]"), Profile: profileOf(t, "{mig: {profiles: [1g]}}"),
	})
	require.ErrorContains(t, err, "NVIDIA L4 does not support MIG")
	twice := inventoryOf(t, "gpus: [{model: L4-24GB}, {model: L4-24GB}]")
	twice.GPUs[1].PCI = twice.GPUs[0].PCI
	_, err = preview.Slices(preview.Node{Name: "node", Inventory: twice})
	assert.ErrorContains(t, err, "another GPU has the same name")
}

// A static partition is published at its position, also where claims are not offered one.
func TestPositionsOfStaticPartitions(t *testing.T) {
	withEngines := func(rule string) (all []string) {
		n := preview.Node{Name: "node", Inventory: inventoryOf(t, "gpus: [{model: H100-80GB}]"), Profile: profileOf(t, rule)}
		for name := range devicesOf(t, n) {
			if _, at, found := strings.Cut(name, "-me-"); found {
				all = append(all, at)
			}
		}
		slices.Sort(all)
		return all
	}
	assert.NotContains(t, withEngines("{}"), "3")
	assert.Equal(t, []string{"3"}, withEngines("{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 3}, {profile: 1g.10gb+me, count: 1}]}}"))
}

// Without MIG, no partition is published; the resources of MIG devices are, where a cluster has them.
func TestPartitionsByProfile(t *testing.T) {
	n := preview.Node{Name: "node", Inventory: inventoryOf(t, "gpus: [{model: A100-40GB}]")}
	partitions := func(rule string, resources bool) (found int, means []string) {
		n.Profile, n.MIGResources = profileOf(t, rule), resources
		for name, d := range devicesOf(t, n) {
			if strings.Contains(name, "-mig-") {
				found++
			}
			if a, ok := d.Attributes["extendedResourceName"]; ok {
				means = append(means, *a.StringValue)
			}
		}
		return found, means
	}
	found, _ := partitions("{mig: {mode: Disabled}}", false)
	assert.Zero(t, found)
	static := "{mig: {mode: Static, partitions: [{profile: 1g.5gb, count: 2}]}}"
	found, means := partitions(static, false)
	assert.Equal(t, 2, found)
	assert.Empty(t, means)
	found, means = partitions(static, true)
	assert.Equal(t, 2, found)
	assert.Equal(t, []string{"nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb"}, means)
}
