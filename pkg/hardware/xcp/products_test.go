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

func TestProductNames(t *testing.T) {
	for id, want := range map[uint16]string{
		0x740f: "AMD Instinct MI210", 0x7410: "AMD Instinct MI210 VF", 0x74b5: "AMD Instinct MI300X VF", 0x75a8: "AMD Instinct MI350P",
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
