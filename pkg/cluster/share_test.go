package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Of devices that exclude each other, one is left; what is tainted is not.
func TestSharesOfAPool(t *testing.T) {
	quantity := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	p := &Pool{Total: gpu.Counters{"ofa-engines": 1}, Taken: gpu.Counters{}}
	for range 3 {
		d := &resourceapi.Device{AllowMultipleAllocations: new(true), Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory":         {Value: resource.MustParse("40"), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: quantity("10"), ValidRange: &resourceapi.CapacityRequestPolicyRange{Max: quantity("20")}}},
			"computePercent": {Value: resource.MustParse("100"), RequestPolicy: &resourceapi.CapacityRequestPolicy{ValidRange: &resourceapi.CapacityRequestPolicyRange{Max: quantity("200")}}},
			"clients":        {Value: resource.MustParse("48")},
		}}
		p.Devices = append(p.Devices, &Device{Device: d, DeviceKind: DeviceKind{Label: "memory share", ShareUnit: gpu.ByMemory}, Consumes: p.Total})
	}
	p.Devices[0].Taints = []resourceapi.DeviceTaint{{Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	assert.Equal(t, []Shares{{
		By: gpu.ByMemory, Default: gpu.Amount{Memory: 10, Compute: 100, Clients: 48}, Most: gpu.Amount{Memory: 20, Compute: 100, Clients: 48},
		Left: []gpu.Amount{{Memory: 40, Compute: 100, Clients: 48}},
	}}, p.shares())
}

// Each shared device has room for as many claims as the scarcest of their amounts allows.
func TestRoomOfShares(t *testing.T) {
	s := Shares{
		Default: gpu.Amount{Memory: 10, Clients: 1}, Most: gpu.Amount{Memory: 40, Compute: 50, Clients: 4},
		Left: []gpu.Amount{{Memory: 40, Compute: 100, Clients: 48}, {Memory: 30, Compute: 100, Clients: 2}, {Memory: -5, Compute: 100, Clients: 48}, {}},
	}
	for name, tt := range map[string]struct {
		asked gpu.Amount
		room  int
	}{
		"the default":                 {gpu.Amount{}, 4 + 2},
		"all that is left of one":     {gpu.Amount{Memory: 30}, 1 + 1},
		"a little more":               {gpu.Amount{Memory: 31}, 1},
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
