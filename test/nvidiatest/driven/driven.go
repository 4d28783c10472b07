// Package driven opens pkg/hardware/nvidia on the machines of nvidiatest, for the tests of the packages
// below it.
//
// It may import pkg/hardware/nvidia, nvidiatest and the simulator.
package driven

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	_ "github.com/tranche-dev/tranche/test/simulator/plainnodes"
)

// Machine is a simulated node with an open driver on it.
type Machine struct {
	*nvidiatest.Machine
	*nvidia.Driver
	Config nvidia.Config
}

// Simulated starts a machine with one of the simulator's inventories. change
// alters the configuration, for instance to put a trap before NVML.
func Simulated(t *testing.T, name string, change ...func(*nvidia.Config)) *Machine {
	t.Helper()
	return WithLibrary(t, name, nvdriver.LibraryForTest(t.Name()), change...)
}

// WithLibrary is Simulated with the library of a driver.
func WithLibrary(t *testing.T, name, library string, change ...func(*nvidia.Config)) *Machine {
	t.Helper()
	root, lib := nvidiatest.Library(t, name, library)
	cfg := nvidia.Config{
		NVML:       nvidiatest.Binding(t, root, lib),
		DriverRoot: filepath.Join(root, "driver"),
		ProcRoot:   root,
		SysRoot:    filepath.Join(root, "sys"),
	}
	for _, f := range change {
		f(&cfg)
	}
	d, err := nvidia.New(cfg)
	require.NoError(t, err)
	m := &Machine{Driver: d, Machine: &nvidiatest.Machine{Driver: d, T: t, Root: root, NVML: lib}, Config: cfg}
	require.NoError(t, d.Open(t.Context()))
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return m
}

// Trapping puts wrap around the handles of GPUs.
func Trapping(wrap func(nvml.Device) nvml.Device) func(*nvidia.Config) {
	return func(c *nvidia.Config) { c.NVML = &nvidiatest.Trap{Interface: c.NVML, Wrap: wrap} }
}
