package publish_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// everyShare publishes all shares that there are, those of partitions of these
// profiles included.
func everyShare(profiles ...string) profile.Desired {
	c := profile.Default()
	c.Profile, c.Partitions, c.PartitionBases = "all", profiles, gpu.Bases()
	return c
}

// deviceNamed is a published device by what its name adds to its GPU's.
func deviceNamed(t *testing.T, gpus []publish.GPU, suffix string) resourceapi.Device {
	t.Helper()
	for _, d := range devicesOf(t, slicesOf(t, gpus), gpus[0].Name()) {
		if d.Name == gpus[0].Name()+suffix {
			return d
		}
	}
	require.Fail(t, "no such device", suffix)
	return resourceapi.Device{}
}

// TestShares: what is published of each kind of share, in the form in which the
// API server gets it.
func TestShares(t *testing.T) {
	h100 := func(change func(*profile.Desired)) []publish.GPU {
		c := everyShare("3g.40gb")
		change(&c)
		return withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 1)), c)
	}
	mi300x := withShares(t, amdMachines[0].gpus(t, 1), everyShare("dpx"))
	unchanged := func(*profile.Desired) {}
	for name, test := range map[string]struct {
		gpus       []publish.GPU
		suffix     string
		attributes map[string]string
		capacity   string
	}{
		"memory of a GPU": {h100(unchanged), "-memory-share",
			map[string]string{"type": "share", "vendor": "nvidia", "shareUnit": "Memory", "sharingStrategy": "TimeSlicing", "isolation": "cooperative"},
			`{"clients": {"value": "48", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}},
			  "computePercent": {"value": "100", "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "100", "step": "1"}}},
			  "memory": {"value": "80348Mi", "requestPolicy": {"default": "8034Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}}}`},
		"fraction of a GPU, by MPS": {h100(func(c *profile.Desired) { c.Strategy, c.Replicas, c.Partitions = gpu.MPS, 3, nil }), "-fraction-share",
			map[string]string{"type": "share", "shareUnit": "Fraction", "sharingStrategy": "MPS", "isolation": "cooperative"},
			`{"clients": {"value": "48", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}},
			  "computePercent": {"value": "100", "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "100", "step": "1"}}},
			  "fraction": {"value": "1", "requestPolicy": {"default": "333m"}}}`},
		"memory of a partition, one client each": {h100(func(c *profile.Desired) { c.FailRequestsGreaterThanOne, c.MaxClients = true, 7 }), "-mig-3g-40gb-4-memory-share",
			map[string]string{"type": "share", "profile": "3g.40gb", "shareUnit": "Memory", "sharingStrategy": "TimeSlicing", "isolation": "none"},
			`{"clients": {"value": "7", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "1"}}},
			  "memory": {"value": "40448Mi", "requestPolicy": {"default": "4044Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}}}`},
		"fraction of a mode's partition": {mi300x, "-dpx-1-fraction-share",
			map[string]string{"type": "share", "vendor": "amd", "profile": "dpx", "shareUnit": "Fraction", "isolation": "none"},
			`{"clients": {"value": "48", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}},
			  "fraction": {"value": "1", "requestPolicy": {"default": "100m"}}}`},
		"fraction of an AMD GPU": {mi300x, "-fraction-share",
			map[string]string{"type": "share", "memoryPartition": "NPS1", "isolation": "none"},
			`{"clients": {"value": "48", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}},
			  "fraction": {"value": "1", "requestPolicy": {"default": "100m"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := deviceNamed(t, test.gpus, test.suffix)
			assert.True(t, ptr.Deref(d.AllowMultipleAllocations, false))
			said := attributesText(d)
			for attribute, value := range test.attributes {
				assert.Equal(t, `"`+value+`"`, said[attribute], attribute)
			}
			of, place := names.AttributeUUID, names.AttributeParentUUID
			if test.attributes["profile"] != "" {
				of, place = place, of
			}
			assert.Equal(t, `"`+test.gpus[0].UUID+`"`, said[of])
			assert.NotContains(t, said, place)
			capacity, err := json.Marshal(d.Capacity)
			require.NoError(t, err)
			assert.JSONEq(t, test.capacity, string(capacity))

			base := deviceNamed(t, test.gpus, strings.TrimSuffix(strings.TrimSuffix(test.suffix, "-memory-share"), "-fraction-share"))
			assert.Nil(t, base.AllowMultipleAllocations)
			assert.Equal(t, base.ConsumesCounters, d.ConsumesCounters)
			for _, attribute := range []resourceapi.QualifiedName{"placementStart", "partitionIndex", "resource.kubernetes.io/pciBusID", "productName"} {
				assert.Equal(t, base.Attributes[attribute], d.Attributes[attribute])
			}
		})
	}
}

// TestNoShares: where the API server would drop what lets several claims hold a
// device, or what keeps devices apart, shares are not published.
func TestNoShares(t *testing.T) {
	gpus := withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 1)), everyShare("3g.40gb"))
	plain := slicesOf(t, gpusOf(t, machineOf(t, "H100-80GB", 1)))
	gpus[0].NoShares = true
	assert.Equal(t, plain, slicesOf(t, gpus))

	gpus[0].NoShares, gpus[0].WholeOnly = false, true
	devices := devicesOf(t, slicesOf(t, gpus), gpus[0].Name())
	require.Len(t, devices, 1)
	assert.Equal(t, gpus[0].Name(), devices[0].Name)
}

// TestExtendedResourceMeansWhatTheSettingsSay: the vendor's extended resource stands for
// replicas or for partitions, and for nothing beside them.
func TestExtendedResourceMeansWhatTheSettingsSay(t *testing.T) {
	for kind, want := range map[v1beta1.ExtendedResourceDevice][]string{
		v1beta1.DeviceGPU:         {""},
		v1beta1.DeviceGPUReplica:  {"-fraction-share"},
		v1beta1.DevicePartition:   {"-mig-3g-40gb-4", "-mig-3g-40gb-0"},
		v1beta1.DeviceAuto:        {"-mig-3g-40gb-4", "-mig-3g-40gb-0"},
		v1beta1.DeviceAutoReplica: {"-mig-3g-40gb-4-fraction-share", "-mig-3g-40gb-0-fraction-share"},
	} {
		c := everyShare("3g.40gb")
		c.ExtendedResource = v1beta1.ExtendedResource{Device: kind, Profile: "3g.40gb"}
		c.Layout.Partitioning, c.Layout.NoWhole, c.Layout.Profiles = profile.PartitioningDynamic, true, []string{"3g.40gb"}
		gpus := withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 1)), c)
		gpus[0].ExtendedResource = "nvidia.com/gpu"
		var got []string
		for _, d := range devicesOf(t, slicesOf(t, gpus), gpus[0].Name()) {
			if a, ok := d.Attributes[names.AttributeExtendedResourceName]; ok {
				assert.Equal(t, "nvidia.com/gpu", *a.StringValue)
				got = append(got, strings.TrimPrefix(d.Name, gpus[0].Name()))
			}
		}
		assert.Equal(t, want, got, kind)
	}
}

// TestSharesThatTheAPIWouldRefuse: settings that pkg/share would refuse, in case
// somebody else makes placements.
func TestSharesThatTheAPIWouldRefuse(t *testing.T) {
	good := withShares(t, gpusOf(t, machineOf(t, "L4-24GB", 1)), profile.Default())[0]
	for name, test := range map[string]struct {
		spoil func(memory, fraction *gpu.Placement)
		want  string
	}{
		"no memory":        {func(m, _ *gpu.Placement) { m.Memory = 1 << 20 }, "device gpu-0000-11-00-0-memory-share is not published: its capacity memory of 1Mi is less than the default 0 or the minimum 2Mi that the API requires"},
		"no clients":       {func(m, _ *gpu.Placement) { m.Share.MaxClients = 0 }, "device gpu-0000-11-00-0-memory-share is not published: its capacity clients of 0 is less than the default 1 or the minimum 1 that the API requires"},
		"empty by default": {func(m, _ *gpu.Placement) { m.Share.Replicas = 1 << 20 }, "device gpu-0000-11-00-0-memory-share is not published: its shares have neither memory nor a fraction by default, so the scheduler would not count them"},
		"no fraction":      {func(_, f *gpu.Placement) { f.Share.Replicas = 1001 }, "device gpu-0000-11-00-0-fraction-share is not published: its shares have neither memory nor a fraction by default, so the scheduler would not count them"},
		"no basis":         {func(_, f *gpu.Placement) { f.Share.By = "" }, "have neither memory nor a fraction"},
	} {
		t.Run(name, func(t *testing.T) {
			g := good
			g.Placements = slices.Clone(good.Placements)
			n := len(g.Placements)
			for i := n - 2; i < n; i++ {
				g.Placements[i].Share = ptr.To(*g.Placements[i].Share)
			}
			test.spoil(&g.Placements[n-2], &g.Placements[n-1])
			_, errs := publish.Slices([]publish.GPU{g})
			require.Len(t, errs, 1)
			assert.ErrorContains(t, errs[0], test.want)
		})
	}
}

// TestFractionsStayWhatTheyAre: a default in thousandths comes back from the API
// server as it was, so that a restart writes nothing.
func TestFractionsStayWhatTheyAre(t *testing.T) {
	for replicas, want := range map[int]string{1: "1", 2: "500m", 3: "333m", 48: "20m", 1000: "1m"} {
		c := profile.Default()
		c.Replicas = replicas
		if replicas == 1000 {
			c.Strategy = gpu.MPS // else the servers would take more than the GPU has
		}
		d := deviceNamed(t, withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 1)), c), "-fraction-share")
		assert.Zero(t, d.Capacity["fraction"].RequestPolicy.Default.Cmp(resource.MustParse(want)), want)
	}
}

// Whoever insists on a limit above the request selects it.
func TestLimitsAboveRequests(t *testing.T) {
	allowed := everyShare("3g.40gb")
	allowed.MaxMemoryLimitPercent = 250
	plain := withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 1)), everyShare("3g.40gb"))
	burst := withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 1)), allowed)
	for _, suffix := range []string{"-memory-share", "-fraction-share"} {
		assert.EqualValues(t, 250, *deviceNamed(t, burst, suffix).Attributes[names.AttributeMaxMemoryLimitPercent].IntValue)
		assert.NotContains(t, deviceNamed(t, plain, suffix).Attributes, resourceapi.QualifiedName(names.AttributeMaxMemoryLimitPercent))
	}
	assert.NotContains(t, deviceNamed(t, burst, "-mig-3g-40gb-4-memory-share").Attributes, resourceapi.QualifiedName(names.AttributeMaxMemoryLimitPercent), "nothing limits its memory")
}
