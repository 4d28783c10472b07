package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestSelectedGPUs(t *testing.T) {
	for want, selector := range map[string]*v1alpha1.GPUSelector{
		"":                        nil,
		"nvidia":                  {Vendor: "nvidia"},
		"with MIG":                {MIG: v1alpha1.MIGCapable},
		"nvidia without MIG":      {Vendor: "nvidia", MIG: v1alpha1.MIGIncapable},
		"H100 A100":               {Products: []string{"H100", "A100"}},
		"0000:1b:00.0":            {PCIAddresses: []string{"0000:1b:00.0"}},
		"0x233010DE":              {PCIIDs: []string{"0x233010DE"}},
		"index 0 index 3":         {Indexes: []int32{0, 3}},
		"2 × any":                 {Count: ptr.To[int32](2)},
		"2 × amd":                 {Vendor: "amd", Count: ptr.To[int32](2)},
		"1 × nvidia H100 index 0": {Vendor: "nvidia", Products: []string{"H100"}, Indexes: []int32{0}, Count: ptr.To[int32](1)},
	} {
		assert.Equal(t, want, selected(selector))
	}
}
