package publish

import (
	"fmt"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
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

// setVersion sets a version of at most three numbers: 580.159.4 for "580.159.04". Others are left
// out: the API refuses them, and as strings they would fail selectors that compare versions.
func (m attributeMap) setVersion(name resourceapi.QualifiedName, text string) {
	parts := strings.Split(text, ".")
	var numbers [3]uint64
	if len(parts) > len(numbers) {
		return
	}
	for i, part := range parts {
		var err error
		if numbers[i], err = strconv.ParseUint(part, 10, 32); err != nil {
			return
		}
	}
	m[name] = resourceapi.DeviceAttribute{VersionValue: ptr.To(fmt.Sprintf("%d.%d.%d", numbers[0], numbers[1], numbers[2]))}
}

// Attributes returns the attributes of a device, for ResourceSlices and for workloads.
func Attributes(g *gpu.GPU, p gpu.Placement) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	m := attributeMap{}
	m.setString(names.AttributeType, string(p.Type))
	m.setString(names.AttributeVendor, string(g.Vendor))
	m.setString(names.AttributeProductName, g.ProductName)
	m.setString(names.AttributeArchitecture, g.Architecture)
	m.setVersion(names.AttributeDriverVersion, g.DriverVersion)
	m.setVersion(names.AttributeCUDAComputeCapability, g.CUDAComputeCapability)
	m.setVersion(names.AttributeCUDADriverVersion, g.CUDADriverVersion)
	if p.Type == gpu.TypeGPU {
		m.setString(names.AttributeLinkGroup, g.LinkGroup)
		if g.Partitionable {
			m[names.AttributePartitionable] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
		}
	}
	m.setString(names.AttributeIsolation, string(p.Isolation))
	m.setString(names.AttributeMemoryPartition, g.MemoryMode)
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
	case gpu.TypeGPU, gpu.TypeMonitor:
		m.setString(names.AttributeUUID, g.UUID)
	case gpu.TypeMIG:
		m.setString(names.AttributeParentUUID, g.UUID)
		m.setString(names.AttributeProfile, p.Profile)
		m.setInt(names.AttributePlacementStart, int64(p.Start))
	case gpu.TypeXCP:
		m.setString(names.AttributeParentUUID, g.UUID)
		m.setString(names.AttributeProfile, p.Profile)
		m.setInt(names.AttributePartitionIndex, int64(p.Start))
	}
}

// Capacity returns the capacities of a device.
func Capacity(p gpu.Placement) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	if p.Share != nil {
		return shareCapacity(p)
	}
	m := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	set := func(name string, n int64, format resource.Format) {
		if n > 0 {
			m[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(n, format)}
		}
	}
	set(names.CapacityMemory, p.Memory, resource.BinarySI)
	set(names.CapacityComputeUnits, p.ComputeUnits, resource.DecimalSI)
	for _, engine := range mediaEngines {
		set(engine, p.Engines[engine], resource.DecimalSI)
	}
	return m
}
