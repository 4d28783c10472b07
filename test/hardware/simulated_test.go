//go:build !hardware

// The program that `make hardware-test` builds is for machines without a simulator.

package hardware

import (
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
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
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
	m.driverRoot, m.hasMPS, m.cuda = driver, true, filepath.Join(programs, "libcuda.so.1")
	return m
}

// simulatorPrograms builds what stands in for NVIDIA's programs and for libcuda, once.
var simulatorPrograms = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "tranche-hardware-test"); err != nil {
		return "", err
	}
	removePrograms = func() { _ = os.RemoveAll(dir) }
	for _, command := range [][]string{
		{"env", "CGO_ENABLED=0", "go", "build", "-o", filepath.Join(dir, "tools"), "../../test/simulator/cmd/simulated-nvidia-tools"},
		{"cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"), "cuda/testdata/libcuda.c"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil { //nolint:noctx // it ends
			return dir, fmt.Errorf("%v: %w: %s", command, err, out)
		}
	}
	return dir, nil
})
