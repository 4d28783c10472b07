package order

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// An order changes which device the allocator gives, and never whether one fits.
func TestOrders(t *testing.T) {
	l, err := fleet.Published(t.Context(), "../../../"+fleet.Chart, false)
	require.NoError(t, err)
	plugin := l.Order()
	assert.Equal(t, "1g.10gb 6 5 4 3 2 1 0, 1g.20gb 6 4 2 0, 2g.20gb 4 2 0, 3g.40gb 4 0, 4g.40gb 0", plugin.String())
	assert.Equal(t, "1g.10gb 0 1 2 3 4 5 6, 1g.20gb 0 2 4 6, 2g.20gb 0 2 4, 3g.40gb 0 4, 4g.40gb 0", ascending(plugin).String())
	assert.Equal(t, 6, plugin[0][0], "the order itself does not change")

	published, err := fleet.Published(t.Context(), "../../../"+fleet.Chart, true)
	require.NoError(t, err)
	byName := func(l *fleet.Layout, d int) string { return l.GPU.Placements[d].Name() }
	other := l.WithOrder(ascending(plugin))
	for k, d := range published.Empty.First {
		assert.Equal(t, byName(published, d), byName(other, other.Empty.First[k]), "the allocator with the devices in this order")
	}
	same := l.WithOrder(plugin)
	random := rand.New(rand.NewPCG(1, 1))
	changed := l.WithOrder(change(plugin, random))
	a, b, c := l.Empty, same.Empty, changed.Empty
	for range 1000 {
		require.Equal(t, a.First, b.First)
		require.Equal(t, a.Devices, c.Devices)
		devices := slices.Concat(a.Devices[:]...)
		if len(devices) == 0 || random.IntN(20) == 0 {
			a, b, c = l.Empty, same.Empty, changed.Empty
			continue
		}
		d := devices[random.IntN(len(devices))]
		a, b, c = a.After[d], b.After[d], c.After[d]
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
