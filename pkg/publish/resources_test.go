package publish_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/inventory"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/settings"
)

// TestLimits: every card of the tables, alone, keeps what the API server would
// insist on.
func TestLimits(t *testing.T) {
	for _, model := range inventory.Models() {
		t.Run(model, func(t *testing.T) {
			checkLimits(t, withShares(t, cardsOf(t, machineOf(t, model, 1)), settings.Default()))
		})
	}
	for _, m := range amdMachines {
		t.Run(m.name(), func(t *testing.T) { checkLimits(t, withShares(t, m.cards(t, 1), settings.Default())) })
	}
	t.Run("MI210", func(t *testing.T) { checkLimits(t, amdMachine{model: "MI210"}.cards(t, 1)) })
}

func checkLimits(t *testing.T, cards []publish.Card) {
	t.Helper()
	cards[0].Taints = []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/unhealthy", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	published := slicesOf(t, cards)
	require.Len(t, published, 2)
	sets, devices := published[0].Spec.SharedCounters, published[1].Spec.Devices
	require.Empty(t, published[0].Spec.Devices, "one slice has counters or devices, never both")
	require.Empty(t, published[1].Spec.SharedCounters)
	require.Len(t, sets, 1)
	checkCounters(t, sets[0])
	require.NotEmpty(t, devices)
	require.LessOrEqual(t, len(devices), resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures)
	names := map[string]bool{}
	for i := range devices {
		require.False(t, names[devices[i].Name], "two devices named %s", devices[i].Name)
		names[devices[i].Name] = true
		checkDevice(t, sets[0], &devices[i])
	}
}

func checkCounters(t *testing.T, set resourceapi.CounterSet) {
	t.Helper()
	require.Empty(t, validation.IsDNS1123Label(set.Name))
	require.NotEmpty(t, set.Counters)
	require.LessOrEqual(t, len(set.Counters), resourceapi.ResourceSliceMaxCountersPerCounterSet)
	for name, counter := range set.Counters {
		require.Empty(t, validation.IsDNS1123Label(name))
		require.Positive(t, counter.Value.Sign(), name)
	}
}

func checkDevice(t *testing.T, set resourceapi.CounterSet, d *resourceapi.Device) {
	t.Helper()
	require.Empty(t, validation.IsDNS1123Label(d.Name))
	require.LessOrEqual(t, len(d.Attributes)+len(d.Capacity), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice)
	for name, attribute := range d.Attributes {
		checkName(t, name)
		if s := attribute.StringValue; s != nil {
			require.LessOrEqual(t, len(*s), resourceapi.DeviceAttributeMaxValueLength)
		}
	}
	for name := range d.Capacity {
		checkName(t, name)
		require.NotContains(t, d.Attributes, name, "an attribute and a capacity of one name confuse people")
	}
	require.Len(t, d.ConsumesCounters, 1)
	require.Equal(t, set.Name, d.ConsumesCounters[0].CounterSet)
	require.NotEmpty(t, d.ConsumesCounters[0].Counters)
	for name, takes := range d.ConsumesCounters[0].Counters {
		require.Contains(t, set.Counters, name)
		total := set.Counters[name].Value
		require.LessOrEqual(t, takes.Value.Cmp(total), 0, "%s takes more of %s than there is", d.Name, name)
	}
}

// checkName: ours are unqualified, others are of the standard domain.
func checkName(t *testing.T, name resourceapi.QualifiedName) {
	t.Helper()
	id := string(name)
	if domain, rest, found := strings.Cut(id, "/"); found {
		require.Equal(t, "resource.kubernetes.io", domain)
		id = rest
	}
	require.Regexp(t, `^[A-Za-z_][A-Za-z0-9_]*$`, id)
	require.LessOrEqual(t, len(id), resourceapi.DeviceMaxIDLength)
}

// TestAlwaysTheSame: the same cards make the same slices, also after a trip
// through the API server, whatever the order in which they are listed.
func TestAlwaysTheSame(t *testing.T) {
	inv := builtIn(t, "h200x8")
	everything := everyShare("1g.18gb", "3g.71gb")
	cards := withShares(t, cardsOf(t, inv), everything)
	first := slicesOf(t, cards)
	again := withShares(t, cardsOf(t, inv), everything)
	slices.Reverse(again)
	second := slicesOf(t, again)
	require.Len(t, second, len(first))
	for i := range first {
		require.True(t, resourceslice.DevicesDeepEqual(first[i].Spec.Devices, second[i].Spec.Devices), first[i].Spec.Pool.Name)
		require.True(t, apiequality.Semantic.DeepEqual(first[i], second[i]), first[i].Spec.Pool.Name)

		a, err := json.Marshal(first[i])
		require.NoError(t, err)
		b, err := json.Marshal(second[i])
		require.NoError(t, err)
		require.Equal(t, string(a), string(b))
		var stored resourceapi.ResourceSlice
		require.NoError(t, json.Unmarshal(a, &stored))
		require.True(t, resourceslice.DevicesDeepEqual(first[i].Spec.Devices, stored.Spec.Devices))
		require.True(t, apiequality.Semantic.DeepEqual(first[i].Spec.SharedCounters, stored.Spec.SharedCounters))
	}
}

func TestPoolForEachCard(t *testing.T) {
	cards := cardsOf(t, builtIn(t, "h100x8"))
	resources, errs := publish.Resources(node, cards)
	require.Empty(t, errs)
	var want []string
	for _, card := range cards {
		want = append(want, "node-a/"+card.Name())
	}
	assert.Equal(t, want, slices.Sorted(maps.Keys(resources.Pools)), "the order of the pools is that of the cards")

	resources, errs = publish.Resources(node, nil)
	assert.Empty(t, errs)
	assert.Empty(t, resources.Pools, "a node without cards")
}

// TestWithheld: the pool stays, as large as before, with nothing to give.
func TestWithheld(t *testing.T) {
	cards := cardsOf(t, machineOf(t, "H100-80GB", 2))
	before := slicesOf(t, cards)
	cards[0].Withheld = true
	after := slicesOf(t, cards)
	require.Len(t, after, len(before))
	assert.Equal(t, before[0].Spec, after[0].Spec, "the counters stay")
	assert.NotEmpty(t, before[1].Spec.Devices)
	assert.Empty(t, after[1].Spec.Devices)
	assert.Equal(t, before[1].Spec.Pool, after[1].Spec.Pool)
	assert.Equal(t, before[2:], after[2:], "the other card")
}

func TestTaintsAreOnAllDevicesOfTheCard(t *testing.T) {
	cards := cardsOf(t, machineOf(t, "H100-80GB", 2))
	taints := []resourceapi.DeviceTaint{
		{Key: "gpu.tranche.dev/other-owner", Value: "nvidia-device-plugin", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		{Key: "gpu.tranche.dev/unhealthy", Effect: resourceapi.DeviceTaintEffectNoExecute},
	}
	cards[1].Taints = taints
	published := slicesOf(t, cards)
	for _, d := range devicesOf(t, published, cards[0].Name()) {
		assert.Empty(t, d.Taints, d.Name)
	}
	for _, d := range devicesOf(t, published, cards[1].Name()) {
		assert.Equal(t, taints, d.Taints, d.Name)
	}
}

// TestOddStrings: what a driver says is cut to what the API takes.
func TestOddStrings(t *testing.T) {
	cards := cardsOf(t, machineOf(t, "L4-24GB", 1))
	cards[0].ProductName = "NVIDIA" + strings.Repeat("é", 40) + "X"
	cards[0].Architecture = ""
	cards[0].DriverVersion = "\xff580.159.04"
	d := devicesOf(t, slicesOf(t, cards), cards[0].Name())[0]
	assert.Equal(t, "NVIDIA"+strings.Repeat("é", 29), *d.Attributes[publish.AttributeProductName].StringValue)
	assert.NotContains(t, d.Attributes, resourceapi.QualifiedName(publish.AttributeArchitecture))
	assert.Equal(t, "580.159.04", *d.Attributes[publish.AttributeDriverVersion].StringValue)
}

// TestCardThatTheAPIWouldRefuse: it is named and published empty, and the card
// beside it is published as ever.
func TestCardThatTheAPIWouldRefuse(t *testing.T) {
	good := cardsOf(t, machineOf(t, "H100-80GB", 2))
	for name, test := range map[string]struct {
		spoil func(*publish.Card)
		want  string
	}{
		"too many counters": {func(c *publish.Card) {
			for i := range 24 {
				c.Counters[fmt.Sprint("more-", i)] = 1
			}
		}, "33 counters, the API allows 32"},
		"too many devices": {func(c *publish.Card) {
			for i := len(c.Placements); i < 65; i++ {
				p := c.Placements[0]
				p.Start = 100 + i
				c.Placements = append(c.Placements, p)
			}
		}, "65 devices, the API allows 64"},
		"too many taints": {func(c *publish.Card) {
			c.Taints = make([]resourceapi.DeviceTaint, 17)
		}, "17 taints, the API allows 16"},
		"two devices of one name": {func(c *publish.Card) {
			c.Placements[1] = c.Placements[0]
		}, "two devices are named gpu-0000-11-00-0-mig-1g-10gb-6"},
		"a profile that is no name": {func(c *publish.Card) {
			c.Placements[0].Profile = "1G_10GB"
		}, "is no name for a device"},
		"a counter that is no name": {func(c *publish.Card) {
			c.Counters["OFA"] = 1
		}, `"OFA" is no name for a counter`},
		"an unknown counter": {func(c *publish.Card) {
			c.Placements[0].Consumes = gpu.Counters{"memory-slice-9": 1}
		}, "consumes memory-slice-9, which the card does not have"},
		"a device that takes nothing": {func(c *publish.Card) {
			c.Placements[0].Consumes = nil
		}, "takes nothing of the card"},
		"no counters": {func(c *publish.Card) {
			c.Counters = nil
		}, "it has no counters"},
	} {
		t.Run(name, func(t *testing.T) {
			cards := slices.Clone(good)
			bad := &cards[0]
			bad.Counters, bad.Placements = maps.Clone(bad.Counters), slices.Clone(bad.Placements)
			test.spoil(bad)
			resources, errs := publish.Resources(node, cards)
			require.Len(t, errs, 1)
			assert.ErrorContains(t, errs[0], "card "+bad.Name())
			assert.ErrorContains(t, errs[0], test.want)
			want := resourceslice.Pool{Slices: []resourceslice.Slice{{}, {}}}
			assert.Equal(t, want, resources.Pools[gpu.PoolName(node, bad.Name())])
			whole, _ := publish.Resources(node, good)
			other := gpu.PoolName(node, cards[1].Name())
			assert.Equal(t, whole.Pools[other], resources.Pools[other], "the other card")
		})
	}
}
