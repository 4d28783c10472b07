package publisher

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestOffered(t *testing.T) {
	taint := func(effect resourceapi.DeviceTaintEffect) []resourceapi.DeviceTaint {
		return []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/busy", Effect: effect}}
	}
	const partition, whole = "gpu-0000-01-00-0-mig-1g-10gb-2", "gpu-0000-01-00-0"
	tainted := func(device string, effect resourceapi.DeviceTaintEffect) publish.GPU {
		return publish.GPU{DeviceTaints: map[string][]resourceapi.DeviceTaint{device: taint(effect)}}
	}
	for name, test := range map[string]struct {
		g           publish.GPU
		want        []string
		unavailable []string
	}{
		"all":                     {publish.GPU{}, []string{partition, whole}, nil},
		"withheld":                {publish.GPU{Withheld: true}, nil, []string{"withheld"}},
		"tainted":                 {publish.GPU{Taints: taint(resourceapi.DeviceTaintEffectNoSchedule)}, nil, []string{"busy"}},
		"tainted for information": {publish.GPU{Taints: taint(resourceapi.DeviceTaintEffectNone)}, []string{partition, whole}, nil},
		"one device tainted":      {tainted(partition, resourceapi.DeviceTaintEffectNoExecute), []string{whole}, nil},
		"no counters":             {publish.GPU{WholeOnly: true}, []string{whole}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			test.g.GPU = nodetest.GPUAt("0000:01:00.0")
			var got []string
			for _, g := range offered([]publish.GPU{test.g}) {
				for _, p := range g.Placements {
					got = append(got, p.Name())
				}
			}
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.unavailable, unavailable(&test.g))
			assert.Len(t, test.g.Placements, 2, "the publication stays")
		})
	}
	assert.Empty(t, offered(nil))
}
