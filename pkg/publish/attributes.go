package publish

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The attributes of devices. Unqualified names are in the driver's domain; a selector reads them
// with device.attributes["gpu.tranche.dev"].?type.orValue("").
const (
	AttributeType           = "type"
	AttributeVendor         = "vendor"
	AttributeProductName    = "productName"
	AttributeArchitecture   = "architecture"
	AttributeUUID           = "uuid"
	AttributeParentUUID     = "parentUUID"
	AttributeProfile        = "profile"
	AttributePlacementStart = "placementStart"
	// AttributePartitionIndex is the index of an AMD partition among those of its
	// mode, from 0.
	AttributePartitionIndex = "partitionIndex"
	// AttributeMemoryPartition is the memory mode of an AMD GPU, as amd-smi spells it:
	// "NPS1".
	AttributeMemoryPartition = "memoryPartition"
	// AttributeComputePartition is "SPX" for a whole AMD GPU that can be partitioned. For a
	// partition, the profile is the mode; publishing both would add 4 KB to the slices of a
	// node with eight GPUs.
	AttributeComputePartition = "computePartition"
	AttributeIsolation        = "isolation"
	// AttributeLegacyResource is the extended resource that the device stands for on this
	// node ("nvidia.com/gpu"). The legacy device classes select by it.
	AttributeLegacyResource = "legacyResource"
	// AttributeDriverVersion is a string, because "580.159.04" is not a semantic version.
	AttributeDriverVersion = "driverVersion"
)

// The capacities of devices.
const (
	CapacityMemory       = gpu.CapacityMemory
	CapacityComputeUnits = "computeUnits"
)

// mediaEngines are the engines that are published. Others, like copy engines, are part of every
// partition, so no claim requests them. Each capacity costs time and memory in the whole cluster.
var mediaEngines = []string{"decoders", "encoders", "jpegEngines", "ofaEngines"}

type attributeMap map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

func (m attributeMap) setString(name resourceapi.QualifiedName, value string) {
	if len(value) > resourceapi.DeviceAttributeMaxValueLength {
		value = value[:resourceapi.DeviceAttributeMaxValueLength]
	}
	// The API server would change an incomplete character, and the slice would be written
	// again and again.
	value = strings.ToValidUTF8(value, "")
	if value == "" {
		return
	}
	m[name] = resourceapi.DeviceAttribute{StringValue: ptr.To(value)}
}

func (m attributeMap) setInt(name resourceapi.QualifiedName, value int64) {
	m[name] = resourceapi.DeviceAttribute{IntValue: ptr.To(value)}
}

// Attributes returns the attributes of a device, for ResourceSlices and for workloads.
func Attributes(g *gpu.GPU, p gpu.Placement) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	m := attributeMap{}
	m.setString(AttributeType, string(p.Type))
	m.setString(AttributeVendor, string(g.Vendor))
	m.setString(AttributeProductName, g.ProductName)
	m.setString(AttributeArchitecture, g.Architecture)
	m.setString(AttributeDriverVersion, g.DriverVersion)
	m.setString(AttributeIsolation, string(p.Isolation))
	m.setString(AttributeMemoryPartition, g.MemoryMode)
	m.setString(deviceattribute.StandardDeviceAttributePCIBusID, g.PCIAddress)
	m.setString(deviceattribute.StandardDeviceAttributePCIeRoot, g.PCIeRoot)
	if g.NUMANode != nil {
		m.setInt(deviceattribute.StandardDeviceAttributeNUMANode, *g.NUMANode)
	}
	if p.Share != nil {
		m.setShare(g, p)
	} else {
		m.setCut(g, p)
	}
	return m
}

// setCut adds the attributes that say which part of its GPU a device is.
func (m attributeMap) setCut(g *gpu.GPU, p gpu.Placement) {
	switch p.Type {
	case gpu.TypeGPU:
		m.setString(AttributeUUID, g.UUID)
		m.setString(AttributeComputePartition, strings.ToUpper(p.Profile))
	case gpu.TypeMIG:
		m.setString(AttributeParentUUID, g.UUID)
		m.setString(AttributeProfile, p.Profile)
		m.setInt(AttributePlacementStart, int64(p.Start))
	case gpu.TypeXCP:
		m.setString(AttributeParentUUID, g.UUID)
		m.setString(AttributeProfile, p.Profile)
		m.setInt(AttributePartitionIndex, int64(p.Start))
	}
}

func capacity(p gpu.Placement) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	if p.Share != nil {
		return shareCapacity(p)
	}
	m := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	set := func(name string, n int64, format resource.Format) {
		if n > 0 {
			m[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(n, format)}
		}
	}
	set(CapacityMemory, p.Memory, resource.BinarySI)
	set(CapacityComputeUnits, p.ComputeUnits, resource.DecimalSI)
	for _, engine := range mediaEngines {
		set(engine, p.Engines[engine], resource.DecimalSI)
	}
	return m
}
