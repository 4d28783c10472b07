package models

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed nvidia.yaml
var nvidiaYAML []byte

// table is the content of nvidia.yaml: what NVML answers about each GPU.
type table struct {
	// Sources names what a row may cite.
	Sources map[string]string       `json:"sources"`
	Models  map[string]*NVIDIAModel `json:"models"`
}

// NVIDIAModel is one kind of GPU.
type NVIDIAModel struct {
	// Key is the model's name in inventories, like H100-80GB.
	Key                   string `json:"-"`
	ProductName           string `json:"productName"`
	Architecture          string `json:"architecture"`
	CUDAComputeCapability string `json:"cudaComputeCapability"`
	// PCIDeviceID is device and vendor as NVML prints them: 0xDDDDVVVV.
	PCIDeviceID string `json:"pciDeviceID"`
	// MemoryMiB is the GPU's memory as NVML's memory info has it. It is zero for a GPU that an
	// inventory describes, and for one of which NVML does not report it.
	MemoryMiB uint64 `json:"memoryMiB"`
	// MemorySlices and ComputeSlices are zero on a GPU without MIG.
	MemorySlices    int `json:"memorySlices,omitempty"`
	ComputeSlices   int `json:"computeSlices,omitempty"`
	Multiprocessors int `json:"multiprocessors"`
	// NVLinks is how many the GPU has. NVSwitch: they lead to NVSwitches, which join all GPUs of
	// a machine.
	NVLinks  int       `json:"nvLinks,omitempty"`
	NVSwitch bool      `json:"nvSwitch,omitempty"`
	Engines  Engines   `json:"engines,omitzero"`
	Sources  []string  `json:"sources"`
	Notes    []string  `json:"notes,omitempty"`
	Profiles []Profile `json:"profiles,omitempty"`
	// ProfilesOf names a model with the same partitions. What this one leaves out is also
	// as there.
	ProfilesOf *ProfilesOf `json:"profilesOf,omitempty"`

	// memory is what programs can use of a GPU that an inventory describes, in bytes.
	memory uint64
}

// ProfilesOf names a model, and says how well it is known that the partitions are the same.
type ProfilesOf struct {
	Model      string `json:"model"`
	Confidence string `json:"confidence"`
}

// Profile is a kind of GPU instance of a GPU.
type Profile struct {
	Name string `json:"name"`
	// Enum is the argument of nvmlDeviceGetGpuInstanceProfileInfo, ID the
	// profile id in its answer: two different numbers.
	Enum          int `json:"enum"`
	ID            int `json:"id"`
	ComputeSlices int `json:"computeSlices"`
	// Size and Starts are in memory slices, one placement for each start.
	Size            int    `json:"size"`
	Starts          []int  `json:"starts"`
	Multiprocessors int    `json:"multiprocessors"`
	MemoryMiB       uint64 `json:"memoryMiB"`
	// OtherMemoryMiB is what other versions of the driver say of the same profile.
	OtherMemoryMiB []uint64 `json:"otherMemoryMiB,omitempty"`
	Engines        Engines  `json:"engines"`
	MaxInstances   int      `json:"maxInstances"`
	Confidence     string   `json:"confidence"`
	Sources        []string `json:"sources"`
}

// Engines counts copy, decode, encode, JPEG and optical-flow engines.
type Engines [5]int

// Indexes of Engines.
const (
	EngineCopy = iota
	EngineDecoder
	EngineEncoder
	EngineJPEG
	EngineOFA
)

// loadTable parses the embedded table once; a mistake in it is a mistake in
// the program, found by the package's own tests.
var loadTable = sync.OnceValue(func() *table {
	t := &table{}
	if err := yaml.UnmarshalStrict(nvidiaYAML, t); err != nil {
		panic(fmt.Sprintf("models: nvidia.yaml: %v", err))
	}
	for key, m := range t.Models {
		m.Key = key
		if m.ProfilesOf != nil {
			m.inherit(t.Models[m.ProfilesOf.Model])
		}
	}
	return t
})

// inherit fills in what the model has from another. The SMs of partitions are in proportion
// to those of the GPU, in whole pairs: a texture processing cluster has two.
func (m *NVIDIAModel) inherit(of *NVIDIAModel) {
	m.Architecture, m.CUDAComputeCapability, m.Engines = of.Architecture, of.CUDAComputeCapability, of.Engines
	m.MemorySlices, m.ComputeSlices = of.MemorySlices, of.ComputeSlices
	m.Multiprocessors = cmp.Or(m.Multiprocessors, of.Multiprocessors)
	m.Profiles = slices.Clone(of.Profiles)
	for i := range m.Profiles {
		p := &m.Profiles[i]
		p.Confidence, p.Sources = m.ProfilesOf.Confidence, m.Sources
		if p.Multiprocessors *= m.Multiprocessors; p.Multiprocessors != m.Multiprocessors*of.Multiprocessors {
			p.Multiprocessors -= p.Multiprocessors % (2 * of.Multiprocessors)
		}
		p.Multiprocessors /= of.Multiprocessors
	}
}

// NVIDIAModels lists the keys of NVIDIA's GPUs that an inventory can name.
func NVIDIAModels() []string {
	return slices.Sorted(maps.Keys(loadTable().Models))
}

// NVIDIAModelByKey returns a GPU of NVIDIA's, or false.
func NVIDIAModelByKey(key string) (*NVIDIAModel, bool) {
	m, ok := loadTable().Models[key]
	return m, ok
}

// HasMIG reports whether the GPU supports MIG.
func (m *NVIDIAModel) HasMIG() bool { return len(m.Profiles) > 0 }

// KeepsMIGMode reports whether the GPU stores MIG mode and needs a reset to
// change it. Ampere keeps it in the InfoROM; from Hopper on the mode belongs
// to the loaded driver (MIG User Guide, "Enable MIG Mode").
func (m *NVIDIAModel) KeepsMIGMode() bool { return m.Architecture == "Ampere" }

// ComputeCapability splits "9.0".
func (m *NVIDIAModel) ComputeCapability() (major, minor int) {
	a, b, _ := strings.Cut(m.CUDAComputeCapability, ".")
	major, _ = strconv.Atoi(a)
	minor, _ = strconv.Atoi(b)
	return major, minor
}

// DeviceID is PCIDeviceID as a number.
func (m *NVIDIAModel) DeviceID() uint32 {
	n, _ := strconv.ParseUint(m.PCIDeviceID, 0, 32)
	return uint32(n)
}

// Memory is the GPU's memory in bytes, and the part of it that the driver keeps. The order of
// magnitude of the latter is nvidia-smi's "Reserved" line (551 MiB of an H100's 81559); no
// GPU's exact number is promised. An inventory that describes a GPU says what is left. The total
// is zero if NVML does not report it, because the GPU shares the memory of the host (nvml.h,
// nvmlDeviceGetMemoryInfo: "certain SOC platforms").
func (m *NVIDIAModel) Memory() (total, reserved uint64) {
	return m.MemoryMiB<<20 + m.memory, m.MemoryMiB / 148 << 20
}
