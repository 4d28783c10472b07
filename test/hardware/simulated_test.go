//go:build !hardware

// The program that `make hardware-test` builds is for machines without a simulator.

package hardware

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/short"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvml/libraries"
	_ "github.com/tranche-dev/tranche/test/simulator/plainnodes"
)

// TestSimulated runs the same checks over simulated GPUs: it is the checks that
// are tested here.
func TestSimulated(t *testing.T) {
	for _, inventory := range short.Some([]string{"mixed", "l4x4", "h100x8", "a100-40x8", "a100-40x8-mig-off", "rtxpro6000x4"}, 2) {
		t.Run(inventory, func(t *testing.T) {
			m := simulatedMachine(t, inventory)
			before := stateOf(t, m)
			for _, check := range checks {
				t.Run(check.name, func(t *testing.T) { check.run(t, m) })
			}
			assert.Equal(t, before, stateOf(t, m), "the checks have changed the GPUs")
		})
	}
}

// TestSimulatedAMD runs the checks of AMD's GPUs over a simulated kernel.
func TestSimulatedAMD(t *testing.T) {
	for _, inventory := range short.Some([]string{"mi300x8", "mi300a4"}, 1) {
		t.Run(inventory, func(t *testing.T) {
			inv, err := models.LoadInventory(inventory)
			require.NoError(t, err)
			kernel, err := amdgpu.New(inv, amdgpu.Options{Root: t.TempDir()})
			require.NoError(t, err)
			m := openAMD(t, kernel)
			m.simulated = true
			before := stateOf(t, m)
			for _, check := range checksOfAMD {
				t.Run(check.name, func(t *testing.T) { check.run(t, m) })
			}
			assert.Equal(t, before, stateOf(t, m), "the checks have changed the GPUs")
		})
	}
}

// TestSimulatedPartition does the same with the checks of -partition.
func TestSimulatedPartition(t *testing.T) {
	for _, inventory := range short.Some([]string{"h100x8", "a100-40x8", "rtxpro6000x4"}, 2) {
		t.Run(inventory, func(t *testing.T) {
			m := simulatedMachine(t, inventory)
			partitionIt(t, m, gpusOf(t, m)[1].PCIAddress, 150)
		})
	}
}

// simulatedMachine starts a machine of the simulator.
func simulatedMachine(t *testing.T, name string) *machine {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	programs, err := simulatorPrograms()
	require.NoError(t, err)
	root := t.TempDir()
	lib, err := nvdriver.New(inv, nvdriver.Options{Root: root, Tools: filepath.Join(programs, "tools"), Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	driver := filepath.Join(root, "driver")
	m := open(t, nvidia.Config{NVML: lib, DriverRoot: driver, ProcRoot: root, SysRoot: filepath.Join(root, "sys")})
	m.devRoot, m.simulated, m.hasNodes = driver, true, lib.HasDeviceNodes()
	m.driverRoot, m.hasMPS, m.cuda = driver, true, libraries.CUDAPath(programs)
	return m
}

// simulatorPrograms builds what stands in for NVIDIA's programs and for libcuda, once.
var simulatorPrograms = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "tranche-hardware-test"); err != nil {
		return "", err
	}
	removePrograms = func() { _ = os.RemoveAll(dir) }
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "tools"), "../../test/simulator/cmd/simulated-nvidia-tools") //nolint:noctx // it ends
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%s: %w: %s", build, err, out)
	}
	return dir, libraries.BuildCUDA(context.Background(), libraries.CUDAPath(dir))
})
