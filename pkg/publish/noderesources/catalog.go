package noderesources

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// Catalog has the devices of all known models of GPUs, and of GPUs that are not known. It is safe
// for concurrent use.
type Catalog struct {
	selectors *cel.Cache
	devices   []device
	// answers has the least of choices, by their key.
	answers *lru.Cache
}

// device is a device with what it takes of a node.
type device struct {
	device    cel.Device
	placement gpu.Placement
	// memoryVaries: machines with the same product have less memory for it where error correction
	// takes a part (GDDR) or the driver keeps more.
	memoryVaries bool
}

// notOurs is a device of another driver. Nothing is known of what a class takes that selects it.
var notOurs = cel.Device{Driver: "other.example.com"}

// NewCatalog returns a Catalog.
func NewCatalog() *Catalog {
	const address = "0000:00:00.0"
	c := &Catalog{selectors: allocation.NewCache(1000), answers: lru.New(10000)}
	seen := map[string]bool{}
	for _, key := range models.NVIDIAModels() {
		model, _ := models.NVIDIAModelByKey(key)
		inventory := models.Inventory{GPUs: []models.GPU{{Model: withLeastMemory(model), PCI: address, NUMANode: -1}}}
		g := inventory.Hardware("")[0]
		// The mode decides which devices there are, and how much memory a whole GPU has.
		for _, mode := range []gpu.MIGMode{gpu.MIGOn, gpu.MIGOff} {
			c.add(g.WithMIG(mode), seen)
		}
	}
	for _, key := range models.AMDModels() {
		model, _ := models.AMDModelByKey(key)
		for _, memory := range append([]xcp.MemoryMode{""}, model.MemoryModes...) {
			inventory := models.Inventory{AMD: []models.AMDGPU{{Model: model, PCI: address, ComputeMode: xcp.SPX, MemoryMode: memory, NUMANode: -1}}}
			c.add(inventory.Hardware("")[0], seen)
		}
	}
	for _, vendor := range []gpu.Vendor{gpu.NVIDIA, gpu.AMD} {
		for _, g := range unknown(vendor, address) {
			c.add(g, seen)
		}
	}
	return c
}

// withLeastMemory returns the model with the least memory that any version of the driver says of
// its profiles.
func withLeastMemory(model *models.NVIDIAModel) *models.NVIDIAModel {
	out := *model
	out.Profiles = slices.Clone(model.Profiles)
	for i := range out.Profiles {
		p := &out.Profiles[i]
		p.MemoryMiB = slices.Min(append(slices.Clone(p.OtherMemoryMiB), p.MemoryMiB))
	}
	return &out
}

const unknownProduct = "unknown-"

// unknown returns GPUs of models that are in no table, with any amount of memory. A selector for
// GPUs with much memory selects one of them that has at most an eighth more than the least that
// it allows, and that much is left out in whole.
func unknown(vendor gpu.Vendor, address string) (all []gpu.GPU) {
	for memory := int64(0); memory < 4<<40; memory = max(1<<30, memory+memory/8) {
		all = append(all, gpu.GPU{
			PCIAddress: address, Vendor: vendor, ProductName: fmt.Sprint(unknownProduct, memory), Memory: memory,
			Placements: []gpu.Placement{{GPU: address, Type: gpu.TypeGPU, Memory: memory, Isolation: gpu.IsolationHardware}},
		})
	}
	return all
}

// add adds the devices of a GPU, each model's once.
func (c *Catalog) add(g gpu.GPU, seen map[string]bool) {
	all := slices.Clone(g.Placements)
	for _, p := range g.Placements {
		if strings.HasPrefix(g.ProductName, unknownProduct) && p.Memory > 0 {
			continue // The one without memory has the least.
		}
		for _, by := range gpu.Bases() {
			all = append(all, gpu.ShareOf(p, by, gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 1, MaxClients: 1}))
		}
	}
	for _, p := range all {
		key := fmt.Sprint(g.ProductName, g.MemoryMode, p.Type, p.Profile, ptr.Deref(p.Share, gpu.Share{}).By)
		if seen[key] {
			continue
		}
		seen[key] = true
		capacity := publish.Capacity(p)
		if p.Share == nil && p.Memory == 0 {
			capacity[names.CapacityMemory] = resourceapi.DeviceCapacity{}
		}
		c.devices = append(c.devices, device{
			device: cel.Device{
				Driver: names.DriverName, AllowMultipleAllocations: ptr.To(p.Share != nil),
				Attributes: publish.Attributes(&g, p), Capacity: capacity,
			},
			placement: p, memoryVaries: p.Base().Type == gpu.TypeGPU || strings.Contains(g.ProductName, "RTX"),
		})
	}
}
