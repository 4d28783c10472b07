package nvidia

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/short"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// TestGPUsOnPaper: what an inventory says about its GPUs without NVML is what
// we read of them through it, for every machine and model, in either MIG mode.
func TestGPUsOnPaper(t *testing.T) {
	machines := map[string]func() (*models.Inventory, error){}
	for _, name := range nvidiatest.Inventories(t) {
		machines[name] = func() (*models.Inventory, error) { return models.LoadInventory(name) }
	}
	for _, model := range short.Some(models.NVIDIAModels(), 10) {
		machines[model] = func() (*models.Inventory, error) {
			return models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, count: 2}, {model: L4-24GB, numaNode: -1}]", model))
		}
	}
	machines["described, no memory"] = func() (*models.Inventory, error) {
		return models.ParseInventory([]byte(`gpus: [{productName: NVIDIA Thor, architecture: Blackwell, memory: "0", computeUnits: 20}]`))
	}
	machines["described"] = func() (*models.Inventory, error) {
		return models.ParseInventory([]byte(`gpus: [{productName: NVIDIA GeForce RTX 5080, architecture: Blackwell, memory: "16608395777", computeUnits: 84}]`))
	}
	for name, load := range machines {
		for _, mode := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, MIG %t", name, mode), func(t *testing.T) {
				inv, err := load()
				require.NoError(t, err)
				if mode && !slices.ContainsFunc(inv.GPUs, func(g models.GPU) bool { return g.Model.HasMIG() }) {
					t.Skip("no GPU has MIG")
				}
				for i := range inv.GPUs {
					inv.GPUs[i].MIGMode = mode && inv.GPUs[i].Model.HasMIG()
				}
				paper := slices.DeleteFunc(inv.Hardware("node-a"), func(g gpu.GPU) bool { return g.Vendor != gpu.NVIDIA })
				assert.Equal(t, readThroughNVML(t, inv, "node-a"), paper)
			})
		}
	}
}

func readThroughNVML(t *testing.T, inv *models.Inventory, seed string) []gpu.GPU {
	t.Helper()
	root := memory.TempDir(t)
	lib, err := nvdriver.New(inv, nvdriver.Options{Root: root, Seed: seed, Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	m := machineWith(t, root, lib)
	return m.GPUs()
}
