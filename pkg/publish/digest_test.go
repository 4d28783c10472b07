package publish

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

func digested() []resourceapi.Device {
	return []resourceapi.Device{
		{
			Name:       "gpu-0000-01-00-0",
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: ptr.To("gpu")}},
			Capacity:   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: *resource.NewQuantity(80<<30, resource.BinarySI)}},
			Taints:     []resourceapi.DeviceTaint{{Key: "tranche.dev/lost", Effect: resourceapi.DeviceTaintEffectNoSchedule}},
		},
		{Name: "gpu-0000-01-00-0-mig-1g-10gb-0"},
	}
}

func TestDigestIsTheSameForWhatTheServerGivesBack(t *testing.T) {
	sent := digested()
	text, err := json.Marshal(sent)
	require.NoError(t, err)
	var back []resourceapi.Device
	require.NoError(t, json.Unmarshal(text, &back))
	back[0].Taints[0].TimeAdded = ptr.To(metav1.NewTime(time.Unix(1e9, 0)))

	assert.Equal(t, Digest(sent), Digest(back))
	assert.NotNil(t, back[0].Taints[0].TimeAdded, "the devices are not changed")
	assert.Len(t, Digest(nil), 16)
}

func TestDigestTellsDevicesApart(t *testing.T) {
	before := Digest(digested())
	for name, change := range map[string]func([]resourceapi.Device) []resourceapi.Device{
		"fewer":   func(d []resourceapi.Device) []resourceapi.Device { return d[:1] },
		"none":    func([]resourceapi.Device) []resourceapi.Device { return nil },
		"order":   func(d []resourceapi.Device) []resourceapi.Device { return []resourceapi.Device{d[1], d[0]} },
		"a name":  func(d []resourceapi.Device) []resourceapi.Device { d[1].Name += "0"; return d },
		"a taint": func(d []resourceapi.Device) []resourceapi.Device { d[0].Taints = nil; return d },
		"an amount": func(d []resourceapi.Device) []resourceapi.Device {
			d[0].Capacity["memory"] = resourceapi.DeviceCapacity{Value: resource.MustParse("40Gi")}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NotEqual(t, before, Digest(change(digested())))
		})
	}
}

func slice(pool, name string, generation, count int64, devices ...string) resourceapi.ResourceSlice {
	s := resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec = resourceapi.ResourceSliceSpec{Driver: names.DriverName, Pool: resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count}}
	for _, d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: d})
	}
	return s
}

// Two GPUs, in the slices of a pool and of others.
const gpuA, gpuB = "gpu-0000-01-00-0", "gpu-0000-02-00-0"

func TestDigestsOfGPUs(t *testing.T) {
	of := func(names ...string) string {
		var devices []resourceapi.Device
		for _, n := range names {
			devices = append(devices, resourceapi.Device{Name: n})
		}
		return Digest(devices)
	}
	foreign := slice("p", "x", 9, 1, "z")
	foreign.Spec.Driver = "gpu.nvidia.com"
	all := []resourceapi.ResourceSlice{
		slice("p", "2", 2, 3, gpuB), slice("p", "old", 1, 1, gpuA+"-old"), slice("p", "1", 2, 3, gpuA, gpuA+"-cpx-0"), slice("p", "0", 2, 3), foreign,
		slice("p/"+gpuA, "1", 9, 1, gpuA+"-of-0.1"),
		slice("incomplete", "1", 1, 2, gpuA),
		slice("empty", "1", 1, 1),
	}
	got := DigestsOf("p", all)
	assert.Equal(t, Digests{gpuA: of(gpuA, gpuA+"-cpx-0"), gpuB: of(gpuB)}, got)
	assert.Equal(t, of(gpuB), got.Of(gpuB))
	assert.Equal(t, of(), got.Of("gpu-0000-03-00-0"), "a GPU without devices")
	assert.Equal(t, of(), DigestsOf("empty", all).Of(gpuA))
	for _, node := range []string{"incomplete", "none"} {
		assert.Nil(t, DigestsOf(node, all))
		assert.Empty(t, DigestsOf(node, all).Of(gpuA), "nothing is known")
	}
}

// The order of the GPUs is found again in what is published.
func TestGPUsOfPublishedSlices(t *testing.T) {
	sets := slice("p", "00000", 2, 4)
	sets.Spec.SharedCounters = []resourceapi.CounterSet{{Name: gpuB}, {Name: gpuA}}
	all := []resourceapi.ResourceSlice{
		slice("p", "00002", 2, 4, gpuA), slice("p", "00003", 2, 4, "gpu-0000-00-00-0"), slice("p", "00001", 2, 4), sets,
		slice("p", "00000-old", 1, 1, "gpu-0000-09-00-0"), slice("q", "00000", 1, 1, "gpu-0000-0a-00-0"),
	}
	assert.Equal(t, []string{gpuB, gpuA, "gpu-0000-00-00-0"}, GPUs("p", all))
	assert.Empty(t, GPUs("none", all))
}
