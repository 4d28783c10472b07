package models

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

//go:embed amd.yaml
var amdYAML []byte

type amdTable struct {
	// Sources names what a GPU may cite.
	Sources map[string]string    `json:"sources"`
	Models  map[string]*AMDModel `json:"models"`
}

// AMDModel is one kind of AMD GPU.
type AMDModel struct {
	// Key is the model's name in inventories, like MI300X.
	Key string `json:"-"`
	// ProductName is the content of product_name. XCCs is from the table of products.
	ProductName string `json:"productName,omitempty"`
	XCCs        int    `json:"-"`
	// GFXTargetVersion is KFD's number of the chip generation: 90402 is gfx942.
	GFXTargetVersion int `json:"gfxTargetVersion"`
	// APU is a chip whose memory is the machine's.
	APU          bool `json:"apu,omitempty"`
	ComputeUnits int  `json:"computeUnits"`
	// XGMI: the GPUs of a machine are one XGMI hive.
	XGMI bool `json:"xgmi,omitempty"`
	// CUsPerArray counts those on the die, also the ones that are fused off.
	CUsPerArray int `json:"cusPerArray"`
	// MemoryMiB is what mem_info_vram_total says.
	MemoryMiB int64 `json:"memoryMiB"`
	// MemoryModes are those that the GPU can be put into; none: it cannot be partitioned.
	MemoryModes []xcp.MemoryMode `json:"memoryModes,omitempty"`
	Engines     AMDEngines       `json:"engines"`
	// PowerWatts is what the GPU may draw.
	PowerWatts int `json:"powerWatts"`
	// ClocksMHz are the highest of the engine and of the memory.
	ClocksMHz [2]int   `json:"clocksMHz"`
	Sources   []string `json:"sources"`
	Notes     []string `json:"notes,omitempty"`

	product xcp.Product
}

// AMDEngines counts SDMA engines, video decoders and JPEG engines.
type AMDEngines [3]int

// Indexes of AMDEngines.
const (
	AMDEngineSDMA = iota
	AMDEngineDecoder
	AMDEngineJPEG
)

var loadAMDTable = sync.OnceValue(func() *amdTable {
	t := &amdTable{}
	if err := yaml.UnmarshalStrict(amdYAML, t); err != nil {
		panic(fmt.Sprintf("models: amd.yaml: %v", err))
	}
	for key, m := range t.Models {
		product, ok := xcp.ProductNamed(key)
		if !ok {
			panic("models: amd.yaml: no product " + key)
		}
		m.Key, m.product, m.XCCs = key, product, product.XCCs
		m.ProductName = cmp.Or(m.ProductName, product.FullName(false))
	}
	return t
})

// AMDModels lists the keys of AMD's GPUs that an inventory can name.
func AMDModels() []string {
	return slices.Sorted(maps.Keys(loadAMDTable().Models))
}

// AMDModelByKey returns a GPU of AMD's, or false.
func AMDModelByKey(key string) (*AMDModel, bool) {
	m, ok := loadAMDTable().Models[key]
	return m, ok
}

// HasPartitions reports whether the GPU can be partitioned.
func (m *AMDModel) HasPartitions() bool { return len(m.MemoryModes) > 0 }

// Architecture is the chip generation as the compiler names it: gfx942.
func (m *AMDModel) Architecture() string {
	v := m.GFXTargetVersion
	return fmt.Sprintf("gfx%d%x%x", v/10000, v/100%100, v%100)
}

// PCIDevice is the device id, which a virtual function has of its own.
func (m *AMDModel) PCIDevice(vf bool) uint32 {
	if vf {
		return uint32(m.product.VF)
	}
	return uint32(m.product.Device)
}

// Memory is the GPU's memory in bytes.
func (m *AMDModel) Memory() int64 { return m.MemoryMiB << 20 }

// Chip is what decides which modes the GPU has.
func (m *AMDModel) Chip(vf bool) xcp.Chip {
	return xcp.Chip{XCCs: m.XCCs, GFX: m.GFXTargetVersion, VF: vf, MemoryModes: m.MemoryModes}
}

// Modes are the compute modes that the chip has under any memory mode, in the
// kernel's order.
func (m *AMDModel) Modes() []xcp.Mode {
	var modes []xcp.Mode
	for _, mode := range []xcp.Mode{xcp.SPX, xcp.DPX, xcp.TPX, xcp.QPX, xcp.CPX} {
		for _, memory := range m.MemoryModes {
			if slices.Contains(xcp.Legal(m.Chip(false), memory), mode) {
				modes = append(modes, mode)
				break
			}
		}
	}
	return modes
}

// AutoMode is the compute mode that the driver chooses when it starts under a
// memory mode (__aqua_vanjaram_get_auto_mode in Linux' aqua_vanjaram.c).
func (m *AMDModel) AutoMode(memory xcp.MemoryMode) xcp.Mode {
	switch regions := memory.Regions(); {
	case regions == 1:
		return xcp.SPX
	case regions == m.XCCs:
		return xcp.CPX
	case regions == m.XCCs/2 && m.APU:
		return xcp.TPX
	case regions == m.XCCs/2:
		return xcp.CPX
	default:
		return xcp.DPX
	}
}

// AMDResource is what one partition of a mode has of a kind of engine.
type AMDResource struct {
	// Instances is how many, SharedBy how many partitions have the same ones.
	Instances, SharedBy int
}

// Resources are those of one partition of a mode, by the folders of
// compute_partition_config. A kind of which there are fewer than partitions is
// shared; JPEG engines come in rows, one with each decoder
// (aqua_vanjaram_get_xcp_res_info in Linux' aqua_vanjaram.c).
func (m *AMDModel) Resources(mode xcp.Mode) map[string]AMDResource {
	n := max(1, mode.Count(m.XCCs))
	of := func(total int) AMDResource {
		if total < n {
			return AMDResource{Instances: 1, SharedBy: n / total}
		}
		return AMDResource{Instances: total / n, SharedBy: 1}
	}
	decoders := m.Engines[AMDEngineDecoder]
	jpeg := of(decoders)
	jpeg.Instances *= m.Engines[AMDEngineJPEG] / decoders
	return map[string]AMDResource{
		"xcc": of(m.XCCs), "dma": of(m.Engines[AMDEngineSDMA]), "dec": of(decoders), "jpeg": jpeg,
	}
}
