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
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
)

// TestLimits: every GPU of the tables, alone, keeps what the API server would
// insist on.
func TestLimits(t *testing.T) {
	for _, model := range models.NVIDIAModels() {
		t.Run(model, func(t *testing.T) {
			checkLimits(t, withShares(t, gpusOf(t, machineOf(t, model, 1)), profile.Default()))
		})
	}
	for _, m := range amdMachines {
		t.Run(m.name(), func(t *testing.T) { checkLimits(t, withShares(t, m.gpus(t, 1), profile.Default())) })
	}
	t.Run("MI210", func(t *testing.T) { checkLimits(t, amdMachine{model: "MI210"}.gpus(t, 1)) })
}

func checkLimits(t *testing.T, gpus []publish.GPU) {
	t.Helper()
	gpus[0].Taints = []resourceapi.DeviceTaint{{Key: names.TaintUnhealthy, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	published := slicesOf(t, gpus)
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
	if gpu.IsMonitor(d.Name) {
		require.Empty(t, d.ConsumesCounters)
		require.Len(t, d.Taints, 1, "without its taint, anybody would get it")
		return
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

// TestAlwaysTheSame: the same GPUs make the same slices, also after a trip
// through the API server.
func TestAlwaysTheSame(t *testing.T) {
	inv := builtIn(t, "h200x8")
	everything := everyShare("1g.18gb", "3g.71gb")
	gpus := withShares(t, gpusOf(t, inv), everything)
	first := slicesOf(t, gpus)
	again := withShares(t, gpusOf(t, inv), everything)
	second := slicesOf(t, again)
	require.Len(t, second, len(first))
	for i := range first {
		sent, err := json.Marshal(first[i])
		require.NoError(t, err)
		var stored resourceapi.ResourceSlice
		require.NoError(t, json.Unmarshal(sent, &stored))
		require.True(t, apiequality.Semantic.DeepEqual(second[i].Spec, stored.Spec), "slice %d", i)
	}
}

// TestOnePoolOfANode: counter sets and devices are in slices of their own, eight GPUs to a
// slice with counter sets, and a GPU that is added changes no slice of another, except for the devices for
// monitors: all of them are in the first one.
func TestOnePoolOfANode(t *testing.T) {
	gpus := gpusOf(t, machineOf(t, "H100-80GB", 17))
	for n, layout := range map[int]string{1: "1d", 2: "2dd", 8: "8dddddddd", 9: "8dddddddd1d", 16: "8dddddddd8dddddddd", 17: "8dddddddd8dddddddd1d"} {
		published, errs := publish.Slices(gpus[:n])
		require.Empty(t, errs)
		var got strings.Builder
		for _, s := range published {
			switch {
			case len(s.SharedCounters) > 0 && len(s.Devices) == 0:
				fmt.Fprint(&got, len(s.SharedCounters))
			case len(s.SharedCounters) == 0 && len(s.Devices) > 0:
				got.WriteString("d")
			}
		}
		assert.Equal(t, layout, got.String(), "%d GPUs", n)
	}
	nine, _ := publish.Slices(gpus[:9])
	all, _ := publish.Slices(gpus)
	for i, s := range nine {
		if i == 9 {
			continue // the counter sets of the second eight
		}
		if i == 1 {
			assert.Len(t, s.Devices, len(withoutMonitors(s.Devices))+9)
			s.Devices, all[i].Devices = withoutMonitors(s.Devices), withoutMonitors(all[i].Devices)
		}
		assert.True(t, apiequality.Semantic.DeepEqual(s, all[i]), "slice %d", i)
	}

	none, errs := publish.Slices(nil)
	assert.Empty(t, errs)
	assert.Empty(t, none, "a node without GPUs")
}

// TestWithheld: the slice stays, with nothing in it.
func TestWithheld(t *testing.T) {
	gpus := gpusOf(t, machineOf(t, "H100-80GB", 2))
	before := slicesOf(t, gpus)
	gpus[0].Withheld = true
	after := slicesOf(t, gpus)
	require.Len(t, after, len(before))
	assert.Equal(t, before[0], after[0], "the counters stay")
	assert.NotEmpty(t, before[1].Spec.Devices)
	assert.Empty(t, withoutMonitors(after[1].Spec.Devices))
	assert.Equal(t, before[1].Spec.Pool, after[1].Spec.Pool)
	assert.Equal(t, before[2:], after[2:], "the other GPU")
}

func TestTaintsAreOnAllDevicesOfTheGPU(t *testing.T) {
	gpus := gpusOf(t, machineOf(t, "H100-80GB", 2))
	taints := []resourceapi.DeviceTaint{
		{Key: names.TaintOtherSystem, Value: "nvidia-device-plugin", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		{Key: names.TaintUnhealthy, Effect: resourceapi.DeviceTaintEffectNoExecute},
	}
	gpus[1].Taints = taints
	published := slicesOf(t, gpus)
	for _, d := range devicesOf(t, published, gpus[0].Name()) {
		assert.Empty(t, d.Taints, d.Name)
	}
	for _, d := range devicesOf(t, published, gpus[1].Name()) {
		assert.Equal(t, taints, d.Taints, d.Name)
	}
}

// TestOddStrings: what a driver says is cut to what the API takes.
func TestOddStrings(t *testing.T) {
	gpus := gpusOf(t, machineOf(t, "L4-24GB", 1))
	gpus[0].ProductName = "NVIDIA" + strings.Repeat("é", 40) + "X"
	gpus[0].Architecture = ""
	d := devicesOf(t, slicesOf(t, gpus), gpus[0].Name())[0]
	assert.Equal(t, "NVIDIA"+strings.Repeat("é", 29), *d.Attributes[names.AttributeProductName].StringValue)
	assert.NotContains(t, d.Attributes, resourceapi.QualifiedName(names.AttributeArchitecture))
}

// TestVersions: versions are those of Kubernetes, or absent. A string of one driver would fail
// selectors that compare the versions of others.
func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"580.159.04": "580.159.4", "580.95.05": "580.95.5", "580.142": "580.142.0", "535": "535.0.0", "6.16.13": "6.16.13", "0.0": "0.0.0",
		"": "", "6.12.12.1": "", "580.159.04-open": "", "in-kernel": "", "\xff580.1": "", "1..2": "", "99999999999.1": "",
	} {
		gpus := gpusOf(t, machineOf(t, "L4-24GB", 1))
		gpus[0].DriverVersion = text
		d := devicesOf(t, slicesOf(t, gpus), gpus[0].Name())[0]
		assert.Equal(t, want, ptr.Deref(d.Attributes[names.AttributeDriverVersion].VersionValue, ""), text)
		if want == "" {
			assert.NotContains(t, d.Attributes, resourceapi.QualifiedName(names.AttributeDriverVersion))
		}
		assert.Equal(t, "8.9.0", *d.Attributes[names.AttributeCUDAComputeCapability].VersionValue)
		assert.Equal(t, "13.0.0", *d.Attributes[names.AttributeCUDADriverVersion].VersionValue)
	}
}

// TestPartitionable: whole GPUs say that they can be partitioned, whatever their mode is.
func TestPartitionable(t *testing.T) {
	for model, want := range map[string]bool{"L4-24GB": false, "H100-80GB": true, "A100-40GB": true, "MI300X": true, "MI210": false} {
		inventory, err := models.ParseInventory([]byte("gpus: [{model: " + model + "}]"))
		require.NoError(t, err)
		gpus := gpusOf(t, inventory)
		for _, d := range devicesOf(t, slicesOf(t, gpus), gpus[0].Name()) {
			a, says := d.Attributes[names.AttributePartitionable]
			assert.Equal(t, want && d.Name == gpus[0].Name(), says, d.Name)
			assert.True(t, !says || ptr.Deref(a.BoolValue, false), d.Name)
		}
	}
}

// TestWhatTheAPIWouldRefuse: a device that breaks a rule is left out and named, or a GPU if
// it is the GPU. Everything beside is published as ever, and the allocator accepts the
// pool.
func TestWhatTheAPIWouldRefuse(t *testing.T) {
	good := gpusOf(t, machineOf(t, "H100-80GB", 2))
	first := good[0].Placements[0].Name()
	taint := func(key, value string) func(*publish.GPU) {
		return func(g *publish.GPU) {
			g.DeviceTaints = map[string][]resourceapi.DeviceTaint{first: {{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}}}
		}
	}
	all := len(good[0].Placements)
	for name, test := range map[string]struct {
		spoil func(*publish.GPU)
		want  string
		left  int
	}{
		"too many counters": {func(g *publish.GPU) {
			for i := range 24 {
				g.Counters[fmt.Sprint("more-", i)] = 1
			}
		}, "34 counters, the API allows 32", 0},
		"too many devices": {func(g *publish.GPU) {
			for i := len(g.Placements); i < 65; i++ {
				p := g.Placements[0]
				p.Start = 100 + i
				g.Placements = append(g.Placements, p)
			}
		}, "65 devices, the API allows 64", 0},
		"a counter that is no name": {func(g *publish.GPU) {
			g.Counters["OFA"] = 1
		}, `"OFA" is not a valid name of a counter`, 0},
		"no counters": {func(g *publish.GPU) {
			g.Counters = nil
		}, "it has no counters", 0},
		"too many taints": {func(g *publish.GPU) {
			taint("k", "")(g)
			for len(g.DeviceTaints[first]) < 17 {
				g.DeviceTaints[first] = append(g.DeviceTaints[first], g.DeviceTaints[first][0])
			}
		}, "17 taints, the API allows 16", all - 1},
		"a taint that is no name":        {taint("a b", ""), "taint a b= is not valid in the API", all - 1},
		"a taint with an odd value":      {taint("a", "b c"), "taint a=b c is not valid in the API", all - 1},
		"two devices of one name":        {func(g *publish.GPU) { g.Placements[1] = g.Placements[0] }, "device " + first + " is not published: another device has the same name", all - 1},
		"a profile that is no name":      {func(g *publish.GPU) { g.Placements[0].Profile = "1G_10GB" }, "its name is not a DNS label", all - 1},
		"an unknown counter":             {func(g *publish.GPU) { g.Placements[0].Consumes = gpu.Counters{"memory-slice-9": 1} }, "consumes memory-slice-9, which the GPU does not have", all - 1},
		"a device that consumes nothing": {func(g *publish.GPU) { g.Placements[0].Consumes = nil }, "consumes no counters of the GPU", all - 1},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := slices.Clone(good)
			bad := &gpus[0]
			bad.Counters, bad.Placements = maps.Clone(bad.Counters), slices.Clone(bad.Placements)
			test.spoil(bad)
			got, errs := publish.Slices(gpus)
			require.Len(t, errs, 1)
			assert.ErrorContains(t, errs[0], "GPU "+bad.Name())
			assert.ErrorContains(t, errs[0], test.want)
			want, _ := publish.Slices(good)
			require.Len(t, got, len(want))
			assert.Len(t, withoutMonitors(got[1].Devices), test.left)
			assert.Equal(t, want[2], got[2], "the other GPU")
			sets := len(want[0].SharedCounters)
			if test.left == 0 && strings.Contains(test.want, "counter") {
				sets--
			}
			assert.Len(t, got[0].SharedCounters, sets)

			c := &cluster{t: t, scheduler: allocator.New(chartClasses(t), allocator.Slices(names.DriverName, node, got))}
			c.scheduler.Compiled = compiled
			assert.Contains(t, c.fill(wholeGPU), good[1].Name(), "the allocator accepts the pool")
		})
	}
}

// TestTwoGPUsOfOneName: the second is left out.
func TestTwoGPUsOfOneName(t *testing.T) {
	gpus := gpusOf(t, machineOf(t, "H100-80GB", 1))
	published, errs := publish.Slices(append(gpus, gpus[0]))
	require.Len(t, errs, 1)
	assert.ErrorContains(t, errs[0], "another GPU has the same name")
	require.Len(t, published, 3)
	assert.Empty(t, published[2].Devices)
	assert.Len(t, published[0].SharedCounters, 1)
}
