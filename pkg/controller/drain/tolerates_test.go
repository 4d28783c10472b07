package drain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
)

// Whatever toleration gets a claim a device with the taint of a switch from the scheduler's
// allocator makes its pod a holder that tolerates it, also after the cache has trimmed the claim.
func TestAHolderToleratesWhateverTheAllocatorAccepts(t *testing.T) {
	published, err := nodes.OfModel("node-a", "H100-80GB", 1)
	require.NoError(t, err)
	classes, err := allocator.Classes("../../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	const value = "cpx"
	for _, s := range published {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: names.TaintSwitching, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
	scheduler := allocator.New(classes, published)
	accepted := 0
	for _, key := range []string{"", names.TaintSwitching, "example.com/other"} {
		for _, operator := range []string{"", "Equal", "Exists"} {
			for _, effect := range []string{"", "NoSchedule", "NoExecute"} {
				for _, v := range []string{"", value, "other"} {
					toleration := resourceapi.DeviceToleration{
						Key: key, Operator: resourceapi.DeviceTolerationOperator(operator), Value: v, Effect: resourceapi.DeviceTaintEffect(effect),
					}
					claim := allocator.Claim("c", allocator.Request("gpu", "gpu-mig-1g-10gb.tranche.dev", 1))
					claim.Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{toleration}
					grant, err := scheduler.Allocate(t.Context(), "node-a", claim)
					require.NoError(t, err)
					if grant == nil {
						continue
					}
					accepted++
					scheduler.ReleaseAll()
					claim.Status.Allocation = &grant.Result
					trimmed, err := TrimClaim(claim)
					require.NoError(t, err)
					for _, c := range []*resourceapi.ResourceClaim{claim, trimmed.(*resourceapi.ResourceClaim)} {
						u := useOf(c, "node-a", []string{gpu.OfDevice(grant.Devices()[0])}, nil)
						require.Len(t, u.devices, 1)
						assert.True(t, u.tolerates, fmt.Sprintf("%+v", toleration))
					}
				}
			}
		}
	}
	assert.Greater(t, accepted, 10, "the allocator accepts some")
}
