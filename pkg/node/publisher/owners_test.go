package publisher

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// What the GPUNode says of other owners has the remedy, and only those count whose GPUs
// the node has.
func TestOwnersForTheReport(t *testing.T) {
	p := newPublishing(t)
	assert.Empty(t, p.OwnersFound())
	amds := inventory.Owner{Vendor: gpu.AMD, Owner: hardware.Owner{Name: "device-config-manager", Found: "its label is there", Remedy: "remove the label"}}
	p.SetOwners(t.Context(), append(inventory.Owners{amds}, pluginOwner...))
	assert.Equal(t, []v1beta1.OtherSystem{{Name: "device-plugin", Message: "a device plugin serves nvidia.com/gpu: 8 here; to let Tranche have the NVIDIA GPUs, keep it off this node"}}, p.OwnersFound())
}

// A driver that publishes the PCI address of one GPU keeps that GPU, and what is no GPU counts for nothing.
func TestOwnerOfOneGPU(t *testing.T) {
	p := newPublishing(t)
	of := func(address string) inventory.Owner {
		return inventory.Owner{PCIAddress: address, Owner: hardware.Owner{Name: "other.example.com", Found: "it publishes " + address, Remedy: "remove it"}}
	}
	p.SetOwners(t.Context(), inventory.Owners{of("0000:01:00.0"), of("0000:99:00.0")})
	assert.Equal(t, map[string]string{gpu1: "empty", gpu2: "published"}, p.state())
	assert.Equal(t, []v1beta1.OtherSystem{{Name: "other.example.com", Message: "it publishes 0000:01:00.0; to let Tranche have NVIDIA GPU 0000:01:00.0, remove it"}}, p.OwnersFound())
	p.SetOwners(t.Context(), inventory.Owners{of("0000:01:00.0"), of("0000:02:00.0")})
	require.Len(t, p.OwnersFound(), 1, "it is one system")
	assert.Contains(t, p.OwnersFound()[0].Message, "GPU 0000:01:00.0, remove it; it publishes 0000:02:00.0; to")
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, map[string]string{gpu1: "published", gpu2: "published"}, p.state())
	p.SetOwners(t.Context(), inventory.Owners{of("0000:02:00.0")})
	assert.Contains(t, p.state()[gpu2], "other-system=other.example.com:NoSchedule")
}

// Who serves one vendor's GPUs is not in the way of the other's.
func TestPublisherOwnersPerVendor(t *testing.T) {
	const amdGPU = "gpu-0000-05-00-0"
	p := newPublishing(t)
	p.ExtendedResources = map[gpu.Vendor]string{gpu.AMD: "amd.com/gpu"}
	manager := inventory.Owners{{Vendor: gpu.AMD, Owner: hardware.Owner{Name: "device-config-manager", Found: "its label says so", Remedy: "remove it"}}}
	p.SetOwners(t.Context(), manager)
	assert.Equal(t, "published", p.state()[gpu1])
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0"), nodetest.AMDGPUAt("0000:05:00.0", "NPS1")}, nil, nil)
	p.Publish(t.Context())
	assert.Equal(t, "published", p.state()[gpu1])
	assert.Equal(t, "empty", p.state()[amdGPU])
	assert.Contains(t, nodetest.AwaitEvent(t, p.api, "OtherSystem", "AMD"), "Tranche does not offer the AMD GPUs of this node, because its label says so.", "once there are such GPUs")
	p.SetOwners(t.Context(), append(manager, pluginOwner...))
	assert.Contains(t, p.state()[gpu1], "other-system=device-plugin")
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, "published", p.state()[amdGPU])
	nodetest.AwaitEvent(t, p.api, "OtherSystemGone", "AMD")
	nodetest.AwaitEvent(t, p.api, "OtherSystemGone", "NVIDIA")
	for _, device := range p.devices() {
		resource := device.Attributes["extendedResourceName"].StringValue
		assert.Equal(t, device.Name == "gpu-0000-05-00-0", resource != nil && *resource == "amd.com/gpu", device.Name)
	}
}

// On a node that Tranche does not manage, nothing is published. While claims hold GPUs, the
// devices stay, with a taint.
func TestPublisherUnmanaged(t *testing.T) {
	p := newPublishing(t)
	unmanaged := inventory.Owners{{Vendor: gpu.NVIDIA, Owner: hardware.Owner{Name: "unmanaged", Found: "it does not have the labels a=b", Remedy: "label the node"}}}
	p.SetOwners(t.Context(), nil)
	p.SetOwners(t.Context(), unmanaged)
	assert.Empty(t, p.sent[len(p.sent)-1])
	assert.Equal(t, []int{0, 0}, p.counted(t), "nothing of it is free for Tranche")
	assert.Equal(t, []string{telemetry.Withheld}, p.UnavailableBecause("0000:02:00.0"))
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, "published", p.state()[gpu1])
	release := p.hold(t, nodetest.GPUAt("0000:01:00.0").Placements[0], names.PoolName(nodetest.NodeName))
	p.SetOwners(t.Context(), unmanaged)
	assert.Equal(t, "published gpu.tranche.dev/other-system=unmanaged:NoSchedule", p.state()[gpu1])
	n := len(p.sent)
	p.ClaimsChanged(t.Context())
	assert.Len(t, p.sent, n)
	release()
	p.ClaimsChanged(t.Context())
	assert.Empty(t, p.sent[len(p.sent)-1], "the last claim was released")
	p.ClaimsChanged(t.Context())
	assert.Len(t, p.sent, n+1)
	event := nodetest.AwaitEvent(t, p.api, "OtherSystem", "")
	assert.Contains(t, event, "because it does not have the labels a=b. To let Tranche have them, label the node")
	assert.NotContains(t, event, "ignoreOtherSystems")
}
