package order

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

func TestAscending(t *testing.T) {
	o := fleet.Order{{6, 0, 3}, {2}, nil, {4, 0}, {0}}
	assert.Equal(t, fleet.Order{{0, 3, 6}, {2}, nil, {0, 4}, {0}}, ascending(o))
	assert.Equal(t, fleet.Order{{6, 0, 3}, {2}, nil, {4, 0}, {0}}, o, "the order itself does not change")
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		changed := change(o, random)
		assert.ElementsMatch(t, o[0], changed[0])
		assert.ElementsMatch(t, o[3], changed[3])
	}
}

func TestSearch(t *testing.T) {
	l, err := fleet.Published(t.Context(), "../../../"+fleet.Chart, false)
	require.NoError(t, err)
	all := []workload.Workload{{Name: "small", Shapes: []workload.Shape{{Kind: 0, Weight: 8, Life: 100}, {Kind: 4, Weight: 1, Life: 100}}}}
	plugin, err := refused(t.Context(), l, l.Order(), all, 0, 2)
	require.NoError(t, err)
	worse, err := refused(t.Context(), l, ascending(l.Order()), all, 0, 2)
	require.NoError(t, err)
	assert.Less(t, plugin[0], worse[0], "small partitions at the start take the only position of 4g.40gb")

	var b strings.Builder
	require.NoError(t, compare(t.Context(), &b, l, all, []named{{"this", l.Order()}}))
	assert.Regexp(t, `\| this: 1g.10gb 6 .* 0 \| \d+\.\d\d % \| \d+\.\d\d % \|`, b.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Search(ctx, &b, l, 1, t.Logf), context.Canceled)
}

func TestMixes(t *testing.T) {
	all, err := mixes()
	require.NoError(t, err)
	for _, w := range all {
		assert.NotEmpty(t, w.Shapes, w.Name)
		for _, s := range w.Shapes {
			assert.LessOrEqual(t, s.Kind, workload.WholeGPU, w.Name)
		}
	}
}
