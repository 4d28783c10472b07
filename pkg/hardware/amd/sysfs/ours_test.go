package sysfs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestWhichGPUsAreOurs(t *testing.T) {
	plain := func(address, device string, gfx int) amdtest.GPU {
		g := amdtest.MI300XSPX()
		g.Address, g.Compute, g.Memory, g.Available, g.Device = address, "", "", "", device
		g.Nodes[0].GFX, g.Nodes[0].XCCs, g.Nodes[0].SIMD = gfx, 1, 416
		return g
	}
	for _, test := range []struct {
		name   string
		device string
		gfx    int
		want   bool
	}{
		{"AMD Instinct MI100", "0x738c", 90008, true},
		{"AMD Instinct MI210", "0x740f", 90010, true},
		{"AMD Instinct MI210 VF", "0x7410", 90010, true},
		{"the graphics of a processor", "0x1586", 100306, false},
		{"a graphics GPU", "0x744c", 110000, false},
	} {
		files, m := machineOf(t, plain(address, test.device, test.gfx))
		gpus := gpusOf(t, m)
		if !test.want {
			assert.Empty(t, gpus, test.name)
			continue
		}
		require.Len(t, gpus, 1, test.name)
		assert.Equal(t, test.name, gpus[0].ProductName, "without a file product_name")
		assert.Empty(t, gpus[0].MemoryMode)
		require.Len(t, gpus[0].Placements, 1)
		assert.Empty(t, gpus[0].Placements[0].Profile, "it cannot be cut")
		assert.Equal(t, gpu.Counters{"memory": gpus[0].Memory}, gpus[0].Counters)
		files.Remove(sysfs.NodesDir + "/2")
		files.Set(sysfs.TopologyDir+"/generation_id", "2")
		_, err := m.Inventory(t.Context())
		assert.ErrorContains(t, amdtest.Broken(t, err, address), "has no node in KFD's topology", "a GPU that was there is not gone")
	}
	display := plain("0000:05:00.0", "0x740f", 0)
	display.Nodes = nil
	files, m := machineOf(t, display)
	assert.Empty(t, gpusOf(t, m), "a GPU without KFD")
	files.Remove(sysfs.KFDDir)
	assert.Empty(t, gpusOf(t, m), "a machine without KFD")
}
