package amdgpu

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// The table of chips has as many XCCs for each as its modes need.
func TestChips(t *testing.T) {
	for id, chip := range chips {
		assert.NotEmpty(t, xcp.Legal(xcp.Chip{XCCs: chip.xccs, GFX: 90402}, xcp.NPS1), "%#x", id)
		assert.Contains(t, chip.name, "AMD Instinct MI3")
	}
}
