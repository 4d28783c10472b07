package models

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// described are the keys of a GPU that the tables do not have: one of NVIDIA's without MIG. AMD's
// need no such keys, because those that are published and have no compute modes are few.
type described struct {
	ProductName  string `json:"productName"`
	Architecture string `json:"architecture"`
	// ComputeCapability is by default that of most GPUs of the architecture.
	ComputeCapability string             `json:"cudaComputeCapability"`
	Memory            *resource.Quantity `json:"memory"`
	ComputeUnits      int                `json:"computeUnits"`
	PCIDevice         string             `json:"pciDevice"`
}

// architectures have GPUs without MIG. The compute capability is one of the generation's that
// has the usual number of CUDA cores in an SM.
var architectures = map[string]string{
	"Volta": "7.0", "Turing": "7.5", "Ampere": "8.6", "Ada Lovelace": "8.9", "Hopper": "9.0", "Blackwell": "12.0",
}

const (
	maxComputeUnits = 10_000
	maxMemory       = int64(1) << 50
)

var (
	// productName is printable and fits NVML_DEVICE_NAME_V2_BUFFER_SIZE.
	productName = regexp.MustCompile(`^[!-~][ -~]{0,94}$`)
	capability  = regexp.MustCompile(`^[1-9][0-9]?\.[0-9]$`)
	pciDevice   = regexp.MustCompile(`^0x[0-9a-fA-F]{4}$`)
)

// firstKey is the first key that is given, empty if none is.
func (d described) firstKey() string {
	switch {
	case d.ProductName != "":
		return "productName"
	case d.Architecture != "":
		return "architecture"
	case d.ComputeCapability != "":
		return "cudaComputeCapability"
	case d.Memory != nil:
		return "memory"
	case d.ComputeUnits != 0:
		return "computeUnits"
	case d.PCIDevice != "":
		return "pciDevice"
	}
	return ""
}

// model is the described GPU. Errors begin with the key in the entry.
func (d described) model() (*NVIDIAModel, error) {
	if !productName.MatchString(d.ProductName) {
		return nil, fmt.Errorf("productName: %q is not the name that nvidia-smi prints, like NVIDIA A10G", d.ProductName)
	}
	for _, m := range loadTable().Models {
		if m.ProductName == d.ProductName && m.HasMIG() {
			return nil, fmt.Errorf("productName: %s has MIG; use model: %s", d.ProductName, m.Key)
		}
	}
	usual, ok := architectures[d.Architecture]
	if !ok {
		return nil, fmt.Errorf("architecture: %q is none of Ada Lovelace, Ampere, Blackwell, Hopper, Turing, Volta", d.Architecture)
	}
	if d.ComputeCapability != "" && !capability.MatchString(d.ComputeCapability) {
		return nil, fmt.Errorf("cudaComputeCapability: %q is not a version like \"8.6\" (quoted)", d.ComputeCapability)
	}
	if d.Memory == nil {
		return nil, errors.New("memory: missing; give what nvidia-smi -q prints as Total less Reserved, like 22515Mi")
	}
	memory := d.Memory.Value()
	if memory < 0 || memory > maxMemory {
		return nil, fmt.Errorf("memory: %s is not between 0 (NVML does not tell it) and 1Pi", d.Memory)
	}
	if d.ComputeUnits < 1 || d.ComputeUnits > maxComputeUnits {
		return nil, fmt.Errorf("computeUnits: %d is not between 1 and %d; give the number of SMs", d.ComputeUnits, maxComputeUnits)
	}
	device := "0x0000"
	if d.PCIDevice != "" {
		if device = d.PCIDevice; !pciDevice.MatchString(device) {
			return nil, fmt.Errorf("pciDevice: %q is not an id like \"0x2237\" (quoted)", d.PCIDevice)
		}
	}
	return &NVIDIAModel{
		Key: d.ProductName, ProductName: d.ProductName, Architecture: d.Architecture, CUDAComputeCapability: cmp.Or(d.ComputeCapability, usual),
		PCIDeviceID: device + "10DE", Multiprocessors: d.ComputeUnits, memory: uint64(memory),
	}, nil
}

// fullKey completes the name of a model whose other names, by size or board, it leaves out: A10G
// is A10G-24GB. Errors begin with the key in the entry.
func fullKey(name string) (string, error) {
	if name == "" {
		return "", errors.New("model: missing; name a model, or describe a GPU without MIG by productName, architecture, memory and computeUnits")
	}
	all := append(NVIDIAModels(), AMDModels()...)
	if slices.Contains(all, name) {
		return name, nil
	}
	switch like := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return !strings.HasPrefix(key, name+"-") }); len(like) {
	case 1:
		return like[0], nil
	case 0:
		return "", fmt.Errorf("model: unknown model %q: choose one of %s, or describe a GPU without MIG by productName, architecture, memory and computeUnits", name, strings.Join(all, ", "))
	default:
		return "", fmt.Errorf("model: %q is several models: choose one of %s", name, strings.Join(like, ", "))
	}
}
