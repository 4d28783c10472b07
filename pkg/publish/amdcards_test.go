package publish_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// amdModel is an AMD card as these tests need it.
type amdModel struct {
	name         string
	architecture string
	chip         xcp.Chip
	computeUnits int64
	memoryMiB    int64
}

var (
	mi300x = amdModel{"AMD Instinct MI300X", "gfx942", xcp.Chip{XCCs: 8, GFX: 90402}, 304, 196592}
	mi300a = amdModel{"AMD Instinct MI300A", "gfx942", xcp.Chip{XCCs: 6, GFX: 90402}, 228, 131056}
	mi308x = amdModel{"AMD Instinct MI308X", "gfx942", xcp.Chip{XCCs: 4, GFX: 90402}, 80, 196592}
	mi355x = amdModel{"AMD Instinct MI355X", "gfx950", xcp.Chip{XCCs: 8, GFX: 90500}, 256, 294896}
)

// facts are what the driver knows of one of them.
func (m amdModel) facts(pciAddress string, memory xcp.MemoryMode) xcp.Facts {
	return xcp.Facts{
		PCIAddress: pciAddress, XCCs: m.chip.XCCs, ComputeUnits: m.computeUnits, Memory: m.memoryMiB << 20,
		MemoryMode: memory, Modes: xcp.Legal(m.chip, memory),
	}
}

// card is one with these facts.
func (m amdModel) card(index int, f xcp.Facts) publish.Card {
	placements, counters := xcp.Devices(f)
	return publish.Card{GPU: gpu.GPU{
		PCIAddress: f.PCIAddress, Vendor: gpu.AMD, Index: index, UUID: fmt.Sprintf("e3a9%012x", index),
		ProductName: m.name, Architecture: m.architecture, DriverVersion: "6.16.13",
		MemoryMode: string(f.MemoryMode), Memory: f.Memory,
		NUMANode: ptr.To(int64(index / 4)), PCIeRoot: fmt.Sprintf("pci0000:%02x", 0x10*index),
		Counters: counters, Placements: placements,
	}}
}

// amdCards are so many cards of a model, all in one memory mode.
func amdCards(t *testing.T, m amdModel, memory xcp.MemoryMode, count int) []publish.Card {
	t.Helper()
	cards := make([]publish.Card, count)
	for i := range cards {
		cards[i] = m.card(i, m.facts(fmt.Sprintf("0000:%02x:00.0", 0x11+0x10*i), memory))
		require.NotEmpty(t, cards[i].Placements)
	}
	return cards
}
