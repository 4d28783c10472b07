package xcp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Ids are unique, and GPUs that the kernel can partition have XCCs that a mode divides.
func TestProducts(t *testing.T) {
	seen := map[uint16]string{}
	for _, p := range products {
		for _, vf := range []bool{false, true} {
			id := p.Device
			if vf {
				id = p.VF
			}
			if vf && id == 0 {
				continue
			}
			assert.Empty(t, seen[id], "%s has the id of another product", p.Name)
			seen[id] = p.Name
			got, isVF, ok := ProductOf(id)
			assert.True(t, ok)
			assert.Equal(t, p, got)
			assert.Equal(t, vf, isVF)
		}
		named, ok := ProductNamed(p.Name)
		assert.True(t, ok)
		assert.Equal(t, p, named)
		if p.Device >= 0x74a0 { // MI300 and later
			assert.Contains(t, Legal(Chip{XCCs: p.XCCs, GFX: 90402}, NPS1), CPX, p.Name)
		} else {
			assert.Equal(t, 1, p.XCCs, p.Name)
		}
	}
}

// Most of these ids are in the PCI ID database, or in data/amdgpu.ids of libdrm.
func TestProductNames(t *testing.T) {
	for id, want := range map[uint16]string{
		0x738c: "AMD Instinct MI100", 0x7408: "AMD Instinct MI250X", 0x740c: "AMD Instinct MI250X / MI250", 0x740f: "AMD Instinct MI210", 0x7410: "AMD Instinct MI210 VF",
		0x74a0: "AMD Instinct MI300A", 0x74a1: "AMD Instinct MI300X", 0x74a2: "AMD Instinct MI308X", 0x74a5: "AMD Instinct MI325X", 0x74a9: "AMD Instinct MI300X HF",
		0x74b5: "AMD Instinct MI300X VF", 0x74b6: "AMD Instinct MI308X VF", 0x74b9: "AMD Instinct MI325X VF", 0x74bd: "AMD Instinct MI300X HF VF",
		0x75a0: "AMD Instinct MI350X", 0x75a3: "AMD Instinct MI355X", 0x75a8: "AMD Instinct MI350P", 0x75b0: "AMD Instinct MI350X VF", 0x75b3: "AMD Instinct MI355X VF",
	} {
		p, vf, ok := ProductOf(id)
		assert.True(t, ok)
		assert.Equal(t, want, p.FullName(vf))
	}
	for _, id := range []uint16{0, 0x1586, 0xffff} {
		_, _, ok := ProductOf(id)
		assert.False(t, ok, "%#x", id)
	}
	_, ok := ProductNamed("MI999")
	assert.False(t, ok)
}
