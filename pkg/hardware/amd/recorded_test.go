package amd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/amdtest"
)

// Two real machines: each partition gets the render node that KFD has recorded for it.
func TestRecordedMachines(t *testing.T) {
	for name, test := range map[string]struct {
		like       amdtest.GPU
		partitions int
	}{
		"mi300x-cpx": {amdtest.MI300XCPX(), 63}, // board graphics have one of 64 DRM numbers
		"mi308x-cpx": {amdtest.MI308XCPX(0, 128), 32},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := amdtest.Recorded(t, name, test.like)
			_, d := onPaper(t, gpus...)
			inventory := inventoryOf(t, d)
			require.Len(t, inventory, 8)
			var want, have []int64
			for i, g := range inventory {
				require.Equal(t, gpus[i].Address, g.PCIAddress)
				live, err := d.Live(t.Context(), g.PCIAddress)
				require.NoError(t, err)
				for _, p := range live {
					if !p.Complete {
						continue
					}
					placement, ok := g.Placement(p.Name())
					require.True(t, ok, p.Name())
					edits, err := d.Edits(t.Context(), placement)
					require.NoError(t, err)
					require.Len(t, edits.DeviceNodes, 2)
					have = append(have, edits.DeviceNodes[1].Minor)
				}
				for _, n := range gpus[i].Nodes {
					want = append(want, int64(n.Minor))
				}
			}
			assert.Equal(t, want, have)
			assert.Len(t, have, test.partitions)
		})
	}
}
