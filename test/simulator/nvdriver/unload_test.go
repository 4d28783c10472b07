package nvdriver

import (
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// The module stays while somebody uses it. Without it nothing opens, and what was cut
// is gone; loaded again it is another load.
func TestUnloadDriver(t *testing.T) {
	root := memory.TempDir(t)
	parse := func(version string) *models.Inventory {
		return parsed(t, "driverVersion: "+version+"\ngpus: [{model: H100-80GB, migMode: enabled}]")
	}
	n := open(t, parse("580.159.04"), root)
	makeGI(t, handleOf(t, n, 0), "1g.10gb", 0)
	module := filepath.Join(root, "sys/module/nvidia")

	require.ErrorIs(t, UnloadDriver(root), ErrModuleInUse, "NVML is open")
	require.Equal(t, nvml.SUCCESS, n.Shutdown())
	require.NoError(t, SetFaults(root, Faults{Processes: []Process{{GPU: "0000:1b:00.0", PID: 6}}}))
	require.ErrorIs(t, UnloadDriver(root), ErrModuleInUse, "a program uses the GPU")
	require.NoError(t, SetFaults(root, Faults{}))
	assert.DirExists(t, module)
	assert.Regexp(t, `^nvidia \d+ 0 - Live `, content(t, root, "proc/modules"))
	pci, addr := filepath.Join(root, "sys/bus/pci"), n.inventory.GPUs[0].PCI
	served, err := filepath.EvalSymlinks(filepath.Join(pci, "devices", addr, "driver"))
	require.NoError(t, err)
	assert.Equal(t, "nvidia", filepath.Base(served))
	assert.FileExists(t, filepath.Join(served, addr, "vendor"))
	require.NoError(t, UnloadDriver(root))
	assert.NoDirExists(t, module)
	assert.Empty(t, content(t, root, "proc/modules"))
	assert.NoFileExists(t, filepath.Join(pci, "devices", addr, "driver"))
	assert.NoDirExists(t, filepath.Join(pci, "drivers/nvidia"))
	assert.Equal(t, nvml.ERROR_DRIVER_NOT_LOADED, n.Init())

	// Another process finds the same, and so does one that brings another version.
	again, err := New(parse("590.44.01"), Options{Root: root})
	require.NoError(t, err)
	assert.Equal(t, nvml.ERROR_DRIVER_NOT_LOADED, again.Init())
	assert.NoDirExists(t, module)

	require.NoError(t, LoadDriver(root))
	require.Equal(t, nvml.SUCCESS, again.Init())
	assert.Equal(t, "590.44.01\n", content(t, root, "sys/module/nvidia/version"))
	assert.NotEmpty(t, content(t, root, "proc/modules"))
	assert.FileExists(t, filepath.Join(pci, "devices", addr, "driver", addr, "vendor"))
	state, err := again.store.Read()
	require.NoError(t, err)
	assert.Empty(t, state.GPUs[0].Instances)
	require.ErrorIs(t, UnloadDriver(root), ErrModuleInUse)
}

func TestLibraryMissing(t *testing.T) {
	root := memory.TempDir(t)
	missing, err := LibraryMissing(root)
	require.NoError(t, err)
	assert.False(t, missing)
	require.NoError(t, SetFaults(root, Faults{LibraryMissing: true}))
	missing, err = LibraryMissing(root)
	require.NoError(t, err)
	assert.True(t, missing)
}
