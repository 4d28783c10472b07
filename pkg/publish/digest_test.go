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
