package workload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableWithoutItsHeader(t *testing.T) {
	_, err := readTable(strings.NewReader("kind\n"))
	require.ErrorContains(t, err, "first line")
}

func TestArrivals(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	pods := 0.0
	for _, s := range all[0].Shapes {
		pods += s.Weight
	}
	assert.InDelta(t, 6203, pods, 0, "pods with GPUs that were scheduled")

	for _, w := range all {
		const gpus, load = 4000, 0.8
		claims := w.Arrivals(gpus, load, 20000, 1)
		held, demand := 0.0, 0.0
		for i, c := range claims {
			require.True(t, i == 0 || claims[i-1].Arrival <= c.Arrival)
			require.LessOrEqual(t, c.CPU, int64(224_000))
			if c.Arrival < 0 {
				held += Kinds[c.Kind].GPUs()
			} else {
				demand += Kinds[c.Kind].GPUs() * c.Life
			}
		}
		assert.InDelta(t, load*gpus, held, GPUsPerNode, w.Name)
		assert.InEpsilon(t, load*gpus, demand/claims[len(claims)-1].Arrival, 0.25, w.Name)
		sum, large := 0.0, 0.0
		for k, share := range w.Popularity() {
			sum += share
			if k >= FirstLarge {
				large += share
			}
		}
		assert.InDelta(t, 1, sum, 1e-9)
		if w.Name == "few-large" {
			assert.InDelta(t, 0.05, large, 1e-9)
		}
	}
}
