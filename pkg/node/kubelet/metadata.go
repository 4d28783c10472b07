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

// metadata describes a device to the workload, in the format that all DRA drivers share. It has
// attributes only, so the claim's part of a capacity becomes an attribute of the same name: memory
// in bytes, fraction ("0.5"), computePercent. memoryLimit is in bytes, too.
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
			if device.MemoryLimit > 0 {
				attributes[names.AttributeMemoryLimit] = resourceapi.DeviceAttribute{IntValue: ptr.To(device.MemoryLimit)}
			}
		}
		return &kubeletplugin.DeviceMetadata{Attributes: attributes}
	}
	return nil
}

// setMemory adds the memory, unless the GPU does not report it.
func setMemory(attributes map[string]resourceapi.DeviceAttribute, bytes int64) {
	if bytes > 0 {
		attributes[names.CapacityMemory] = resourceapi.DeviceAttribute{IntValue: ptr.To(bytes)}
	}
}

// setAmount adds the claim's part of a share.
func setAmount(attributes map[string]resourceapi.DeviceAttribute, a gpu.Amount) {
	setMemory(attributes, a.Memory)
	if a.Fraction > 0 {
		attributes[names.CapacityFraction] = resourceapi.DeviceAttribute{StringValue: ptr.To(fraction(a.Fraction))}
	}
	if a.Compute > 0 {
		attributes[names.CapacityComputePercent] = resourceapi.DeviceAttribute{IntValue: ptr.To(a.Compute)}
	}
}

// fraction formats thousandths as a decimal: "0.5".
func fraction(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/gpu.WholeFraction, 'f', -1, 64)
}
