package node

import (
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// What the slices have as capacities is told as attributes: metadata has no
// others.
const (
	// metadataMemory is the memory that the claim has, in bytes.
	metadataMemory = "memoryBytes"
	// metadataFraction is what the claim has of a share by fraction ("0.5").
	metadataFraction = "fraction"
	// metadataCompute is the percentage of the compute units that a share has at
	// most.
	metadataCompute = "computePercent"
)

// metadata is what the workload is told about its device, in a file of a format
// that all DRA drivers share.
func (d *driver) metadata(device ledger.Device) *kubeletplugin.DeviceMetadata {
	for _, g := range d.gpus.List() {
		if g.PCIAddress != device.Placement.GPU {
			continue
		}
		attributes := map[string]resourceapi.DeviceAttribute{
			metadataMemory: {IntValue: ptr.To(device.Placement.Memory)},
		}
		for name, value := range publish.Attributes(&g.GPU, device.Placement) {
			attributes[string(name)] = value
		}
		if device.UUID != "" {
			attributes[publish.AttributeUUID] = resourceapi.DeviceAttribute{StringValue: ptr.To(device.UUID)}
		}
		if device.Amount != nil {
			tellAmount(attributes, *device.Amount)
		}
		return &kubeletplugin.DeviceMetadata{Attributes: attributes}
	}
	return nil
}

// tellAmount says what the workload has of a share.
func tellAmount(attributes map[string]resourceapi.DeviceAttribute, a gpu.Amount) {
	attributes[metadataMemory] = resourceapi.DeviceAttribute{IntValue: ptr.To(a.Memory)}
	if a.Fraction > 0 {
		attributes[metadataFraction] = resourceapi.DeviceAttribute{StringValue: ptr.To(fraction(a.Fraction))}
	}
	if a.Compute > 0 {
		attributes[metadataCompute] = resourceapi.DeviceAttribute{IntValue: ptr.To(a.Compute)}
	}
}

// fraction writes thousandths as people do: "0.5".
func fraction(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/gpu.WholeFraction, 'f', -1, 64)
}
