package nvidia

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	_ "github.com/tranche-dev/tranche/test/simulator/plainnodes"
)

// machine is a simulated node with an open driver on it.
type machine struct {
	*nvidiatest.Machine
	*Driver
}

// simulated starts a machine with one of the simulator's inventories. change
// alters the configuration, for instance to put a trap before NVML.
func simulated(t *testing.T, name string, change ...func(*Config)) *machine {
	t.Helper()
	return withLibrary(t, name, nvdriver.LibraryForTest(t.Name()), change...)
}

// withLibrary is simulated with the library of a driver.
func withLibrary(t *testing.T, name, library string, change ...func(*Config)) *machine {
	t.Helper()
	root, lib := nvidiatest.Library(t, name, library)
	return machineWith(t, root, lib, change...)
}

// machineWith opens a driver on a simulated machine.
func machineWith(t *testing.T, root string, lib *nvdriver.NVML, change ...func(*Config)) *machine {
	t.Helper()
	cfg := Config{
		NVML:       nvidiatest.Binding(t, root, lib),
		DriverRoot: filepath.Join(root, "driver"),
		ProcRoot:   root,
		SysRoot:    filepath.Join(root, "sys"),
	}
	for _, f := range change {
		f(&cfg)
	}
	d, err := New(cfg)
	require.NoError(t, err)
	m := &machine{Driver: d, Machine: &nvidiatest.Machine{Driver: d, T: t, Root: root, NVML: lib}}
	require.NoError(t, d.Open(t.Context()))
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return m
}

// trapping puts wrap around the handles of GPUs.
func trapping(wrap func(nvml.Device) nvml.Device) func(*Config) {
	return func(c *Config) { c.NVML = &nvidiatest.Trap{Interface: c.NVML, Wrap: wrap} }
}
