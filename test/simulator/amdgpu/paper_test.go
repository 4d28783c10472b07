package amdgpu_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// TestGPUsOnPaper: what an inventory says about AMD's GPUs is what our driver
// reads of them from the simulated kernel, for every machine and model, whatever
// mode each GPU is in.
func TestGPUsOnPaper(t *testing.T) {
	machines := map[string]func() (*models.Inventory, error){}
	for _, name := range models.InventoryNames() {
		machines[name] = func() (*models.Inventory, error) { return models.LoadInventory(name) }
	}
	for _, key := range models.AMDModels() {
		model, _ := models.AMDModelByKey(key)
		for _, memory := range model.MemoryModes {
			machines[key+" "+string(memory)] = func() (*models.Inventory, error) {
				return models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, memoryMode: %s, count: 2, numaNode: -1}]", key, memory))
			}
		}
		machines[key+" and its virtual function"] = func() (*models.Inventory, error) {
			return models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s}, {model: %s, virtualFunction: true}]", key, key))
		}
	}
	for name, load := range machines {
		inv, err := load()
		require.NoError(t, err, name)
		if len(inv.AMD) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			paper := slices.DeleteFunc(inv.Hardware("node-a"), func(g gpu.GPU) bool { return g.Vendor != gpu.AMD })
			kernel, err := amdgpu.New(inv, amdgpu.Options{Root: memory.TempDir(t), Seed: "node-a", Sleep: func(time.Duration) {}, Logf: t.Logf})
			require.NoError(t, err)
			assert.Equal(t, paper, gpus(t, kernel))
			for i, c := range inv.AMD {
				if modes := c.Model.Modes(); len(modes) > 0 {
					// Not every mode goes with the memory mode; then the GPU stays as it is.
					_ = kernel.WriteFile("/sys/bus/pci/devices/"+c.PCI+"/current_compute_partition", []byte(modes[i%len(modes)]))
				}
			}
			assert.Equal(t, paper, gpus(t, kernel), "in other modes")
		})
	}
}

// gpus are what a driver that has just started finds.
func gpus(t *testing.T, files sysfs.Files) []gpu.GPU {
	t.Helper()
	driver, err := amd.New(amd.Config{Files: files, HostDevRoot: "/", Logger: testr.New(t), BusyPatience: time.Second})
	require.NoError(t, err)
	require.NoError(t, driver.Open(t.Context()))
	defer func() { require.NoError(t, driver.Close(context.WithoutCancel(t.Context()))) }()
	found, err := driver.Inventory(t.Context())
	require.NoError(t, err)
	return found
}
