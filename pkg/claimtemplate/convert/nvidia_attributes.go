package convert

import (
	"github.com/tranche-dev/tranche/api/names"
)

// nvidiaDriver is the name of NVIDIA's driver, and the domain of its attributes.
const nvidiaDriver = "gpu.nvidia.com"

// devices are the devices that a request selects from.
type devices string

// The devices of a request. They are unknown for custom classes.
const (
	anyDevices devices = ""
	wholeGPUs  devices = "gpu"
	migDevices devices = "mig"
	shares     devices = "share"
)

// sharedAttributes are NVIDIA's attributes that have the same name and meaning, from
// cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go.
var sharedAttributes = map[string]bool{
	names.AttributeType: true, names.AttributeUUID: true, names.AttributeParentUUID: true,
	names.AttributeProfile: true, names.AttributeProductName: true, names.AttributeArchitecture: true,
	names.AttributeDriverVersion: true, names.AttributeCUDAComputeCapability: true, names.AttributeCUDADriverVersion: true,
}

// remedies are the remedies for attributes without a counterpart.
var remedies = map[string]string{
	"brand":          "select productName",
	"addressingMode": "select architecture",
	"index":          "select uuid, or resource.kubernetes.io/pciBusID",
	"minor":          "select uuid, or resource.kubernetes.io/pciBusID",
	"gpuModuleID":    "select uuid, or resource.kubernetes.io/pciBusID",
	"numa":           "select resource.kubernetes.io/numaNode",
	"deviceID":       "select productName",
	"vendorID":       "the class selects the vendor: remove it",
	"iommuFDEnabled": "Tranche does not pass GPUs to virtual machines",
}

// missingAttribute explains why an attribute of these devices cannot be read. It returns "" if it can.
func missingAttribute(name string, on devices) string {
	switch {
	case name == names.AttributeUUID && on == migDevices:
		return "partitions are created for claims, and have no UUID until then: select profile and parentUUID"
	case name == names.AttributeType && on == shares:
		return "the class selects shares: remove it"
	case sharedAttributes[name]:
		return ""
	case remedies[name] != "":
		return remedies[name]
	}
	return "Tranche has no such attribute: select type, uuid, parentUUID, profile, productName, architecture, driverVersion, cudaComputeCapability or cudaDriverVersion"
}

// sharedCapacities maps NVIDIA's capacities to their counterparts.
var sharedCapacities = map[string]string{
	"memory": names.CapacityMemory, "multiprocessors": names.CapacityComputeUnits,
	"decoders": "decoders", "encoders": "encoders", "jpegEngines": "jpegEngines", "ofaEngines": "ofaEngines",
}

// capacityRemedy is the remedy for a capacity without a counterpart.
const capacityRemedy = "Tranche has no such capacity: use memory, multiprocessors, decoders, encoders, jpegEngines or ofaEngines"
