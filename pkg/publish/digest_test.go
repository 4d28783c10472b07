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

	"github.com/tranche-dev/tranche/pkg/gpu"
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
	s.Spec = resourceapi.ResourceSliceSpec{Driver: gpu.DriverName, Pool: resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count}}
	for _, d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: d})
	}
	return s
}

func TestDigestsOfPools(t *testing.T) {
	of := func(names ...string) string {
		var devices []resourceapi.Device
		for _, n := range names {
			devices = append(devices, resourceapi.Device{Name: n})
		}
		return Digest(devices)
	}
	foreign := slice("p", "x", 9, 1, "z")
	foreign.Spec.Driver = "gpu.nvidia.com"
	got := Digests([]resourceapi.ResourceSlice{
		slice("p", "2", 2, 2, "b"), slice("p", "old", 1, 1, "a"), slice("p", "1", 2, 2), foreign,
		slice("incomplete", "1", 1, 2, "a"),
		slice("empty", "1", 1, 1),
		slice("q", "1", 1, 2, "a"), slice("q", "2", 1, 2, "b"),
	})
	assert.Equal(t, map[string]string{"p": of("b"), "empty": of(), "q": of("a", "b")}, got)
}
