package kubelet

import (
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// Metadata has attributes only, so capacities of the ResourceSlices become attributes.
const (
	// metadataMemory is the claim's memory in bytes.
	metadataMemory = "memoryBytes"
	// metadataFraction is the claim's part of a share by fraction ("0.5").
	metadataFraction = "fraction"
	// metadataCompute is the maximum percentage of the compute units.
	metadataCompute = "computePercent"
)

// metadata describes a device to the workload, in the format that all DRA drivers share.
func (d *Driver) metadata(device ledger.Device) *kubeletplugin.DeviceMetadata {
	for _, g := range d.GPUs.List() {
		if g.PCIAddress != device.Placement.GPU {
			continue
		}
		attributes := map[string]resourceapi.DeviceAttribute{}
		setMemory(attributes, device.Placement.Memory)
		for name, value := range publish.Attributes(&g.GPU, device.Placement) {
			attributes[string(name)] = value
		}
		if device.UUID != "" {
			attributes[names.AttributeUUID] = resourceapi.DeviceAttribute{StringValue: ptr.To(device.UUID)}
		}
		if device.Amount != nil {
			setAmount(attributes, *device.Amount)
		}
		return &kubeletplugin.DeviceMetadata{Attributes: attributes}
	}
	return nil
}

// setMemory adds the memory, unless the GPU does not report it.
func setMemory(attributes map[string]resourceapi.DeviceAttribute, bytes int64) {
	if bytes > 0 {
		attributes[metadataMemory] = resourceapi.DeviceAttribute{IntValue: ptr.To(bytes)}
	}
}

// setAmount adds the claim's part of a share.
func setAmount(attributes map[string]resourceapi.DeviceAttribute, a gpu.Amount) {
	setMemory(attributes, a.Memory)
	if a.Fraction > 0 {
		attributes[metadataFraction] = resourceapi.DeviceAttribute{StringValue: ptr.To(fraction(a.Fraction))}
	}
	if a.Compute > 0 {
		attributes[metadataCompute] = resourceapi.DeviceAttribute{IntValue: ptr.To(a.Compute)}
	}
}

// fraction formats thousandths as a decimal: "0.5".
func fraction(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/gpu.WholeFraction, 'f', -1, 64)
}
