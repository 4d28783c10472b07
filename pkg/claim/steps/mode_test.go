package steps

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

func xcp(mode string, index int) gpu.Placement {
	return gpu.Placement{GPU: claims.Address(0), Type: gpu.TypeXCP, Profile: mode, Start: index, Consumes: gpu.Counters{}}
}

// Partitions that follow the mode of their GPU are nobody's: those that are
// there stand in no claim's way, and none is destroyed.
func TestPlanForPartitionsThatFollowTheMode(t *testing.T) {
	live := map[string][]gpu.Partition{claims.Address(0): {claims.PartitionAt(xcp("cpx", 0), "x"), claims.PartitionAt(xcp("cpx", 1), "x")}}
	for _, p := range []gpu.Placement{xcp("cpx", 1), xcp("dpx", 0), claims.Whole(0)} {
		s := situationOf(p)
		s.Live = live
		steps, err := Prepare(s)
		require.NoError(t, err, p.Name())
		assert.Equal(t, []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpWriteCDI}, {Op: OpDone}}, steps, p.Name())

		record := claims.Record("a", ledger.Prepared, p)
		assert.Equal(t, []Step{{Op: OpRemoveCDI}, {Op: OpForget}}, Release(record, live, nil, nil), p.Name())
	}
}

// A claim is prepared as long as its GPU is in the mode of its device.
func TestPlanWhenTheModeHasChanged(t *testing.T) {
	cpx := claims.PartitionAt(xcp("cpx", 0), "x")
	for name, tt := range map[string]struct {
		held gpu.Placement
		live []gpu.Partition
		done bool
	}{
		"partition, same mode":    {xcp("cpx", 0), []gpu.Partition{cpx}, true},
		"partition, whole now":    {xcp("cpx", 0), nil, false},
		"partition, another mode": {xcp("dpx", 0), []gpu.Partition{cpx}, false},
		"partition, missing now":  {xcp("cpx", 1), []gpu.Partition{cpx}, false},
		"whole GPU, whole":        {claims.Whole(0), nil, true},
		"whole GPU, cut now":      {claims.Whole(0), []gpu.Partition{cpx}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := situationOf(tt.held)
			held := claims.Record("a", ledger.Prepared, tt.held)
			for i := range held.Devices {
				held.Devices[i].UUID = "x"
			}
			s.Held, s.CDI = &held, true
			s.Live = map[string][]gpu.Partition{claims.Address(0): tt.live}
			steps, err := Prepare(s)
			require.NoError(t, err)
			if tt.done {
				assert.Empty(t, steps)
			} else {
				assert.Equal(t, []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpWriteCDI}, {Op: OpDone}}, steps)
			}
		})
	}
}
