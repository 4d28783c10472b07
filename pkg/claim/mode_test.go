package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

func xcp(mode string, index int) gpu.Placement {
	return gpu.Placement{GPU: address(0), Type: gpu.TypeXCP, Profile: mode, Start: index, Consumes: gpu.Counters{}}
}

// Partitions that follow the mode of their GPU are nobody's: those that are
// there stand in no claim's way, and none is destroyed.
func TestPlanForPartitionsThatFollowTheMode(t *testing.T) {
	live := map[string][]gpu.Partition{address(0): {partitionAt(xcp("cpx", 0), "x"), partitionAt(xcp("cpx", 1), "x")}}
	for _, p := range []gpu.Placement{xcp("cpx", 1), xcp("dpx", 0), whole(0)} {
		s := situationOf(p)
		s.live = live
		steps, err := planPrepare(s)
		require.NoError(t, err, p.Name())
		assert.Equal(t, []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpWriteCDI}, {Op: OpDone}}, steps, p.Name())

		record := recordOfClaim("a", ledger.Prepared, p)
		assert.Equal(t, []Step{{Op: OpRemoveCDI}, {Op: OpForget}}, planRelease(record, live, nil, nil), p.Name())
	}
}

// A claim is prepared as long as its GPU is in the mode of its device.
func TestPlanWhenTheModeHasChanged(t *testing.T) {
	cpx := partitionAt(xcp("cpx", 0), "x")
	for name, tt := range map[string]struct {
		held gpu.Placement
		live []gpu.Partition
		done bool
	}{
		"partition, same mode":    {xcp("cpx", 0), []gpu.Partition{cpx}, true},
		"partition, whole now":    {xcp("cpx", 0), nil, false},
		"partition, another mode": {xcp("dpx", 0), []gpu.Partition{cpx}, false},
		"partition, missing now":  {xcp("cpx", 1), []gpu.Partition{cpx}, false},
		"whole GPU, whole":        {whole(0), nil, true},
		"whole GPU, cut now":      {whole(0), []gpu.Partition{cpx}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := situationOf(tt.held)
			held := recordOfClaim("a", ledger.Prepared, tt.held)
			for i := range held.Devices {
				held.Devices[i].UUID = "x"
			}
			s.held, s.cdi = &held, true
			s.live = map[string][]gpu.Partition{address(0): tt.live}
			steps, err := planPrepare(s)
			require.NoError(t, err)
			if tt.done {
				assert.Empty(t, steps)
			} else {
				assert.Equal(t, []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpWriteCDI}, {Op: OpDone}}, steps)
			}
		})
	}
}

// The drivers of two vendors are loaded anew each for itself: what a claim holds
// on the GPUs of the other one is still its own.
func TestPrepareAfterOneDriverWasLoadedAnew(t *testing.T) {
	stays, goes := mig(0, "1g.10gb", 5, 1), mig(1, "1g.10gb", 2, 1)
	p := newPlace(t, 2)
	c := claimFor("a", stays, goes)
	before, err := p.start().Prepare(t.Context(), c)
	require.NoError(t, err)
	p.hardware.lose()
	p.hardware.add(stays, before.Devices[0].UUID)
	p.hardware.loads = map[string]string{address(1): "boot-1, second load"}

	m := p.start()
	foreign, err := m.Foreign(t.Context(), address(0))
	require.NoError(t, err)
	assert.Empty(t, foreign)
	now, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, before.Devices[0].UUID, now.Devices[0].UUID)
	assert.NotEqual(t, before.Devices[1].UUID, now.Devices[1].UUID)
	assert.Equal(t, "boot-1, second load", now.Devices[1].LoadID)

	// A third load, after which nobody prepares the claim again.
	p.hardware.loads = map[string]string{address(1): "boot-1, third load"}
	require.NoError(t, p.start().Unprepare(t.Context(), refOf("a")))
	assert.Equal(t, []string{before.Devices[0].UUID}, p.hardware.destroyed)
}
