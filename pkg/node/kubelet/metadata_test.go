package kubelet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// A workload is told what it has, not what the device has. What is not known is left out.
func TestMetadata(t *testing.T) {
	known := &inventory.GPUs{}
	g := nodetest.GPUAt("0000:01:00.0")
	known.Update([]gpu.GPU{nodetest.GPUAt("0000:00:00.0"), g}, nil, nil)
	d := New(Config{GPUs: known})
	device := g.Placements[0]
	unmeasured := device
	unmeasured.Memory = 0
	memory := fmt.Sprintf("memory=%d", device.Memory)
	for name, test := range map[string]struct {
		placement gpu.Placement
		uuid      string
		amount    *gpu.Amount
		limit     int64
		want      string
	}{
		"a partition":       {device, "MIG-1", nil, 0, memory + " uuid=MIG-1"},
		"without UUID":      {device, "", nil, 0, memory},
		"no known memory":   {unmeasured, "MIG-1", nil, 0, "uuid=MIG-1"},
		"an amount":         {device, "", &gpu.Amount{Memory: 1 << 30}, 0, "memory=1073741824"},
		"a limit above it":  {device, "", &gpu.Amount{Memory: 1 << 30}, 2 << 30, "memory=1073741824 memoryLimit=2147483648"},
		"a fraction":        {device, "", &gpu.Amount{Fraction: 1}, 0, memory + " fraction=0.001"},
		"a part of compute": {device, "", &gpu.Amount{Memory: 1 << 30, Compute: 1}, 0, "memory=1073741824 computePercent=1"},
	} {
		t.Run(name, func(t *testing.T) {
			held := nodetest.HeldDevice(test.placement, test.uuid, false)
			held.Amount, held.MemoryLimit = test.amount, test.limit
			got := d.metadata(held).Attributes
			assert.Equal(t, device.Profile, ptr.Deref(got[string(names.AttributeProfile)].StringValue, ""))
			var texts []string
			for _, name := range []string{names.CapacityMemory, names.CapacityFraction, names.CapacityComputePercent, names.AttributeMemoryLimit, names.AttributeUUID} {
				switch a := got[name]; {
				case a.IntValue != nil:
					texts = append(texts, fmt.Sprintf("%s=%d", name, *a.IntValue))
				case a.StringValue != nil:
					texts = append(texts, name+"="+*a.StringValue)
				}
			}
			assert.Equal(t, test.want, strings.Join(texts, " "))
		})
	}
	require.Nil(t, d.metadata(nodetest.HeldDevice(nodetest.GPUAt("0000:09:00.0").Placements[0], "", false)), "its GPU is not known")
}
