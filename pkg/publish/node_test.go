package publish_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

const node = "node-a"

// builtIn loads one of the inventories that come with the simulator.
func builtIn(t *testing.T, name string) *models.Inventory {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	return inv
}

// nvidiaMachines are the built-in inventories that have GPUs of NVIDIA's only.
func nvidiaMachines(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(models.InventoryNames(), func(name string) bool { return len(builtIn(t, name).AMD) > 0 })
}

// machineOf is an inventory of so many GPUs of one model, cut-ready.
func machineOf(t *testing.T, model string, count int) *models.Inventory {
	t.Helper()
	m, ok := models.NVIDIAModelByKey(model)
	require.True(t, ok, model)
	mode := "disabled"
	if m.HasMIG() {
		mode = "enabled"
	}
	inv, err := models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, count: %d, migMode: %s}]", model, count, mode))
	require.NoError(t, err)
	return inv
}

// gpusOf are the GPUs of a machine, of both vendors.
func gpusOf(t *testing.T, inv *models.Inventory) []publish.GPU {
	t.Helper()
	var gpus []publish.GPU
	if len(inv.GPUs) > 0 {
		gpus = append(gpus, nvidiaGPUsOf(t, inv)...)
	}
	if len(inv.AMD) > 0 {
		gpus = append(gpus, amdGPUs(t, amdDriver(t, inv))...)
	}
	slices.SortFunc(gpus, func(a, b publish.GPU) int { return cmp.Compare(a.Name(), b.Name()) })
	return gpus
}

// offered leaves out the devices that a node without a profile does not offer.
func offered(gpus []publish.GPU) []publish.GPU {
	for i := range gpus {
		gpus[i].Placements = nodes.Offered(gpus[i].Placements)
	}
	return gpus
}

// withShares adds the share devices to GPUs, as the settings want them and on a
// node where MPS works, and says what the vendor's old resource means.
func withShares(t *testing.T, gpus []publish.GPU, c profile.Desired) []publish.GPU {
	t.Helper()
	for i := range gpus {
		devices, err := c.ShareDevices(&gpus[i].GPU, true)
		require.NoError(t, err)
		gpus[i].Placements = append(slices.Clone(gpus[i].Placements), devices...)
		gpus[i].Means = c.Means
	}
	return gpus
}

// nvidiaGPUsOf reads a simulated machine the way the node's plugin does:
// through NVML. It needs no privileges.
func nvidiaGPUsOf(t *testing.T, inv *models.Inventory) []publish.GPU {
	t.Helper()
	found, err := nodes.NVIDIAGPUs(t.Context(), inv, node, memory.TempDir(t))
	require.NoError(t, err)
	require.Len(t, found, len(inv.GPUs))
	gpus := make([]publish.GPU, len(found))
	for i := range found {
		gpus[i].GPU = found[i]
	}
	return gpus
}

// slicesOf are the API objects of a node with these GPUs.
func slicesOf(t *testing.T, gpus []publish.GPU) []*resourceapi.ResourceSlice {
	t.Helper()
	published, errs := publish.Slices(gpus)
	require.Empty(t, errs)
	return allocator.Slices(names.DriverName, node, published)
}

// devicesOf are the devices of a GPU, in order, which are all in one slice.
func devicesOf(t *testing.T, slices []*resourceapi.ResourceSlice, gpuID string) []resourceapi.Device {
	t.Helper()
	var devices []resourceapi.Device
	found := false
	for _, slice := range slices {
		if own := withoutMonitors(slice.Spec.Devices); len(own) > 0 && gpu.OfDevice(own[0].Name) == gpuID {
			require.False(t, found, "two slices of GPU %s", gpuID)
			found = true
			devices = append(devices, own...)
		}
	}
	require.True(t, found, "no slice of GPU %s", gpuID)
	return devices
}

// withoutMonitors are the devices that take something of a GPU.
func withoutMonitors(devices []resourceapi.Device) []resourceapi.Device {
	return lists.Filter(devices, func(d resourceapi.Device) bool { return !gpu.IsMonitor(d.Name) })
}
