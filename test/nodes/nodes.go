package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// NVIDIAGPUs reads the NVIDIA GPUs of an inventory through the simulated NVML, as the
// plugin reads real ones. UUIDs follow from seed. Its files lie in a folder of their own
// below dir while it reads.
func NVIDIAGPUs(ctx context.Context, inv *models.Inventory, seed, dir string) ([]gpu.GPU, error) {
	root, err := os.MkdirTemp(dir, "sim")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root) //nolint:errcheck // it is a temporary folder
	library, err := nvdriver.New(inv, nvdriver.Options{Root: root, Seed: seed, Sleep: func(time.Duration) {}})
	if err != nil {
		return nil, err
	}
	driver, err := nvidia.New(nvidia.Config{
		NVML: library, DriverRoot: library.DriverRoot(), ProcRoot: root, SysRoot: filepath.Join(root, "sys"),
	})
	if err != nil {
		return nil, err
	}
	if err := driver.Open(ctx); err != nil {
		return nil, err
	}
	defer driver.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
	return driver.Inventory(ctx)
}

// Slices are the API objects that a node with these GPUs publishes.
func Slices(node string, gpus []gpu.GPU) ([]*resourceapi.ResourceSlice, error) {
	out := make([]publish.GPU, len(gpus))
	for i := range gpus {
		out[i].GPU = gpus[i]
	}
	return slicesOf(node, out)
}

// Offered returns the placements that a node without a profile offers.
func Offered(all []gpu.Placement) []gpu.Placement {
	return slices.DeleteFunc(slices.Clone(all), func(p gpu.Placement) bool { return !profile.Layout{}.Offers(p) })
}

// OnlyOffered leaves GPUs the placements that a node without a profile offers.
func OnlyOffered(gpus []gpu.GPU) {
	for i := range gpus {
		gpus[i].Placements = Offered(gpus[i].Placements)
	}
}

func slicesOf(node string, gpus []publish.GPU) ([]*resourceapi.ResourceSlice, error) {
	for i := range gpus {
		gpus[i].Placements = Offered(gpus[i].Placements)
	}
	published, errs := publish.Slices(gpus)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return allocator.Slices(names.DriverName, node, published), nil
}

// OfModel are the API objects that a node with so many GPUs of a model publishes. What is said of
// each GPU may be changed.
func OfModel(node, model string, count int, change ...func(n int, g *publish.GPU)) ([]*resourceapi.ResourceSlice, error) {
	inv, err := models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, count: %d}]", model, count))
	if err != nil {
		return nil, err
	}
	var out []publish.GPU
	for i, g := range inv.Hardware(node) {
		out = append(out, publish.GPU{GPU: g})
		for _, f := range change {
			f(i, &out[i])
		}
	}
	return slicesOf(node, out)
}

// WithShares adds the share devices that the default settings ask for. limited means
// that MPS daemons keep the holders to their memory.
func WithShares(gpus []gpu.GPU, limited bool) ([]gpu.GPU, error) {
	gpus = slices.Clone(gpus)
	for i := range gpus {
		shares, err := profile.Default().ShareDevices(&gpus[i], limited)
		if err != nil {
			return nil, err
		}
		gpus[i].Placements = append(slices.Clone(gpus[i].Placements), shares...)
	}
	return gpus, nil
}
