package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Each shared device has room for as many claims as the scarcest of their amounts allows.
func TestRoomOfShares(t *testing.T) {
	s := Shares{
		Default: gpu.Amount{Memory: 10, Clients: 1}, Most: gpu.Amount{Memory: 40, Compute: 50, Clients: 4},
		Left: []gpu.Amount{{Memory: 40, Compute: 100, Clients: 48}, {Memory: 25, Compute: 100, Clients: 2}, {Memory: -5, Compute: 100, Clients: 48}, {}},
	}
	for name, tt := range map[string]struct {
		asked gpu.Amount
		room  int
	}{
		"the default":                 {gpu.Amount{}, 4 + 2},
		"all that is left of one":     {gpu.Amount{Memory: 25}, 1 + 1},
		"a little more":               {gpu.Amount{Memory: 26}, 1},
		"all that a claim can have":   {gpu.Amount{Memory: 40}, 1},
		"more than a claim can have":  {gpu.Amount{Memory: 41}, 0},
		"compute is scarce":           {gpu.Amount{Compute: 50}, 2 + 2},
		"more compute than there is":  {gpu.Amount{Compute: 51}, 0},
		"clients are scarce":          {gpu.Amount{Clients: 2}, 4 + 1},
		"more clients than there are": {gpu.Amount{Clients: 5}, 0},
		"a fraction of memory":        {gpu.Amount{Fraction: 500}, 0},
	} {
		assert.Equal(t, tt.room, s.Room(tt.asked), name)
	}
	halves := Shares{Default: gpu.Amount{Fraction: 100}, Most: gpu.Amount{Fraction: 1000}, Left: []gpu.Amount{{Fraction: 1000}, {Fraction: 499}}}
	assert.Equal(t, 2, halves.Room(gpu.Amount{Fraction: 500}))
	assert.Zero(t, (&Shares{Most: gpu.Amount{Clients: 4}, Left: []gpu.Amount{{Clients: 4}}}).Room(gpu.Amount{}), "an amount of nothing is none")
}
