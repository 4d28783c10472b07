package e2e

import (
	"context"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// action is what an administrator does to a GPU of node-a, or looks at on node-c. With simulated
// GPUs, nvidia-smi has no command for it.
type action struct {
	// Make and Remove name a placement.
	Make, Remove string
	// Reset is the address of a GPU.
	Reset string
	// Unload unloads NVIDIA's module, Load loads it again.
	Unload, Load bool
	// Read and List name a file and a folder of amdgpu's, Modprobe has arguments for amdgpu's modprobe.
	Read, List, Modprobe string
	// Faults are those of AMD GPUs from now on.
	Faults *amdgpu.Faults
	// Process begins to use AMD GPUs. EndProcess is the id of one that ends.
	Process    *amdgpu.Process
	EndProcess int
}

// byHand does something to a GPU of node-a behind the plugin's back.
func (s *suite) byHand(d action) {
	s.t.Helper()
	s.byHandOn(nodeA, d)
}

// byHandOn is byHand for any node. It returns what there is to see.
func (s *suite) byHandOn(node string, d action) string {
	s.t.Helper()
	out, err := s.tryByHandOn(node, d)
	require.NoError(s.t, err, out)
	return out
}

// tryByHandOn is byHandOn for an action that may fail.
func (s *suite) tryByHandOn(node string, d action) (string, error) {
	s.t.Helper()
	root := s.onDisk(node, simulateRoot)
	switch {
	case d.Reset != "":
		return "", nvdriver.ResetGPU(root, d.Reset)
	case d.Unload:
		return "", nvdriver.UnloadDriver(root)
	case d.Load:
		return "", nvdriver.LoadDriver(root)
	case d.Faults != nil:
		return "", amdgpu.SetFaults(root, *d.Faults)
	case d.Process != nil:
		return "", amdgpu.StartProcess(root, *d.Process)
	case d.EndProcess != 0:
		return "", amdgpu.EndProcess(root, d.EndProcess)
	case d.Read != "" || d.List != "" || d.Modprobe != "":
		return d.look(s.ctx, root)
	}
	return "", d.cut(s.ctx, root)
}

// cut makes or removes a partition of node-a.
func (d action) cut(ctx context.Context, root string) error {
	library, err := nvdriver.Open(root, "")
	if err != nil {
		return err
	}
	driver, err := nvidia.New(nvidia.Config{NVML: library, DriverRoot: root + "/driver", ProcRoot: root, SysRoot: root + "/sys"})
	if err != nil {
		return err
	}
	if err := driver.Open(ctx); err != nil {
		return err
	}
	defer driver.Close(ctx) //nolint:errcheck // nothing was written since
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

// look is what the simulated kernel of node-c shows, or what its modprobe says.
func (d action) look(ctx context.Context, root string) (string, error) {
	inv, err := models.LoadInventory("mi300x8")
	if err != nil {
		return "", err
	}
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: root, Seed: nodeC})
	if err != nil {
		return "", err
	}
	if d.List != "" {
		names, err := kernel.ReadDir(d.List)
		return strings.Join(names, " "), err
	}
	if d.Modprobe != "" {
		said, err := kernel.Modprobe(ctx, "modprobe", strings.Fields(d.Modprobe)...)
		return string(said), err
	}
	data, err := kernel.ReadFile(d.Read)
	return string(data), err
}
