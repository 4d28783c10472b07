package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// actionVariable makes the test binary do something on a node and end: nodes see
// this machine's files, and what an administrator does there by nvidia-smi has
// no command with simulated GPUs.
const actionVariable = "TRANCHE_E2E_ACTION"

// action is what an administrator does to a GPU of node-a, or looks at on node-c.
type action struct {
	// Make and Remove name a placement.
	Make, Remove string
	// Reset is the address of a GPU.
	Reset string
	// Unload unloads NVIDIA's module, Load loads it again.
	Unload, Load bool
	// Read and List name a file and a folder of amdgpu's.
	Read, List string
	// Faults are those of AMD GPUs from now on.
	Faults *amdgpu.Faults
	// EndProcess is the id of a process that uses AMD GPUs.
	EndProcess int
}

func TestMain(m *testing.M) {
	if text := os.Getenv(actionVariable); text != "" {
		var d action
		err := json.Unmarshal([]byte(text), &d)
		if err == nil {
			err = d.do(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// byHand does something to a GPU of node-a behind the plugin's back.
func (s *suite) byHand(d action) {
	s.t.Helper()
	s.byHandOn(nodeA, d)
}

// byHandOn is byHand for any node. It returns what the action prints.
func (s *suite) byHandOn(node string, d action) string {
	s.t.Helper()
	out, err := s.tryByHandOn(node, d)
	require.NoError(s.t, err, out)
	return out
}

// tryByHandOn is byHandOn for a action that may fail.
func (s *suite) tryByHandOn(node string, d action) (string, error) {
	s.t.Helper()
	program, err := os.Executable()
	require.NoError(s.t, err)
	text, err := json.Marshal(d)
	require.NoError(s.t, err)
	return s.tryOnNode(node, "env", actionVariable+"="+string(text), program)
}

func (d action) do(ctx context.Context) error {
	if d.Reset != "" {
		return nvdriver.ResetGPU(simulateRoot, d.Reset)
	}
	if d.Unload {
		return nvdriver.UnloadDriver(simulateRoot)
	}
	if d.Load {
		return nvdriver.LoadDriver(simulateRoot)
	}
	if d.Faults != nil {
		return amdgpu.SetFaults(simulateRoot, *d.Faults)
	}
	if d.EndProcess != 0 {
		return amdgpu.EndProcess(simulateRoot, d.EndProcess)
	}
	if d.Read != "" || d.List != "" {
		return d.look()
	}
	inv, err := models.LoadInventory("h100x8", "")
	if err != nil {
		return err
	}
	// The driver's programs stay what the plugin has made them.
	tools := filepath.Join(simulateRoot, nvtools.DriverBin, nvtools.ControlProgram)
	library, err := nvdriver.New(inv, nvdriver.Options{Root: simulateRoot, Seed: nodeA, Tools: tools})
	if err != nil {
		return err
	}
	driver, err := nvidia.New(nvidia.Config{NVML: library, DriverRoot: simulateRoot + "/driver", ProcRoot: simulateRoot, SysRoot: simulateRoot + "/sys"})
	if err != nil {
		return err
	}
	if err := driver.Open(ctx); err != nil {
		return err
	}
	defer driver.Close(ctx) //nolint:errcheck // the process ends
	gpus, err := driver.Inventory(ctx)
	if err != nil {
		return err
	}
	for i := range gpus {
		if p, ok := gpus[i].Placement(d.Make); ok {
			_, err := driver.Create(ctx, p)
			return err
		}
		if p, ok := gpus[i].Placement(d.Remove); ok {
			return driver.Destroy(ctx, p)
		}
	}
	return fmt.Errorf("no GPU has a placement %q or %q", d.Make, d.Remove)
}

// look prints what the simulated kernel of node-c shows.
func (d action) look() error {
	inv, err := models.LoadInventory("mi300x8")
	if err != nil {
		return err
	}
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: simulateRoot, Seed: nodeC})
	if err != nil {
		return err
	}
	if d.List != "" {
		names, err := kernel.ReadDir(d.List)
		fmt.Println(strings.Join(names, " "))
		return err
	}
	data, err := kernel.ReadFile(d.Read)
	fmt.Print(string(data))
	return err
}
