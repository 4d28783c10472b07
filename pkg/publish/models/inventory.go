package models

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/lists"
)

//go:embed inventories/*.yaml
var builtIn embed.FS

// MaxGPUs is how many GPUs the nvidia-caps driver numbers (mig-minors lists
// gpu0 to gpu31).
const MaxGPUs = 32

// Inventory is a machine: its drivers and its GPUs in PCI order. A machine may
// have GPUs of both vendors or of one; the other's facts mean nothing then.
type Inventory struct {
	// Name is how the inventory was asked for.
	Name string
	// Text is what it was read from.
	Text string
	// DriverVersion is that of NVIDIA's driver.
	DriverVersion string
	// CUDADriverVersion is major × 1000 + minor × 10, as NVML gives it.
	CUDADriverVersion int
	// NoMPS is a driver that was installed without MPS.
	NoMPS  bool
	Delays Delays
	// GPUs are NVIDIA's GPUs.
	GPUs      []GPU
	AMDDriver AMDDriver
	AMD       []AMDGPU
}

// GPU is one GPU of NVIDIA's of an inventory.
type GPU struct {
	Model *NVIDIAModel
	// PCI is the address as sysfs spells it: 0000:1b:00.0.
	PCI string
	// MIGMode is the mode at the first start.
	MIGMode bool
	// NUMANode is -1 where the machine has none.
	NUMANode int
	// Bridge is equal for GPUs that NVLink bridges join each to each; empty: none.
	Bridge string
}

// Delays are how long the hardware takes for each change.
type Delays struct {
	CreateGPUInstance      time.Duration
	CreateComputeInstance  time.Duration
	DestroyComputeInstance time.Duration
	DestroyGPUInstance     time.Duration
	SetMIGMode             time.Duration
}

// defaultDelays: an instance takes 0.3 s to create (GPU and compute instance
// together) and 1 s to destroy.
var defaultDelays = Delays{
	CreateGPUInstance:      200 * time.Millisecond,
	CreateComputeInstance:  100 * time.Millisecond,
	DestroyComputeInstance: 200 * time.Millisecond,
	DestroyGPUInstance:     800 * time.Millisecond,
	SetMIGMode:             time.Second,
}

// The driver of an inventory that names none.
const defaultDriverVersion = "580.159.04"

// cudaVersions has the CUDA version of each branch of NVIDIA's driver, oldest first (CUDA Toolkit
// release notes, "CUDA Toolkit and Minimum Required NVIDIA Driver Version").
var cudaVersions = []struct {
	branch int
	cuda   string
}{
	{525, "12.0"}, {530, "12.1"}, {535, "12.2"}, {545, "12.3"}, {550, "12.4"}, {555, "12.5"}, {560, "12.6"}, {565, "12.7"},
	{570, "12.8"}, {575, "12.9"}, {580, "13.0"}, {590, "13.1"}, {595, "13.2"}, {610, "13.3"},
}

func cudaOf(driverVersion string) string {
	text, _, _ := strings.Cut(driverVersion, ".")
	branch, _ := strconv.Atoi(text)
	cuda := cudaVersions[0].cuda
	for _, v := range cudaVersions {
		if v.branch <= branch {
			cuda = v.cuda
		}
	}
	return cuda
}

type inventoryFile struct {
	DriverVersion     string `json:"driverVersion"`
	CUDADriverVersion string `json:"cudaDriverVersion"`
	// MPS is whether the driver has it; default: true.
	MPS    *bool                      `json:"mps"`
	Delays map[string]metav1.Duration `json:"delays"`
	AMD    amdFile                    `json:"amd"`
	GPUs   []gpuFile                  `json:"gpus"`
}

type gpuFile struct {
	Model string `json:"model"`
	described
	Count    *int     `json:"count"`
	NUMANode *int     `json:"numaNode"`
	PCI      []string `json:"pci"`
	// MIGMode is NVIDIA's.
	MIGMode string `json:"migMode"`
	// NVLinkBridge is how many GPUs of the entry a bridge joins: NVIDIA's.
	NVLinkBridge int `json:"nvLinkBridge"`
	// The others are AMD's.
	ComputeMode     string `json:"computeMode"`
	MemoryMode      string `json:"memoryMode"`
	VirtualFunction bool   `json:"virtualFunction"`
}

// InventoryNames lists the built-in inventories.
func InventoryNames() []string {
	entries, err := builtIn.ReadDir("inventories")
	if err != nil {
		return nil
	}
	names := lists.Map(entries, func(e fs.DirEntry) string { return strings.TrimSuffix(e.Name(), ".yaml") })
	slices.Sort(names)
	return names
}

// LoadInventory reads an inventory: a path (anything with a slash or ending
// in .yaml), the name of a file <name>.yaml in one of the folders, a
// built-in name, or an instance type of a cloud. A folder's file wins over
// others of the same name.
func LoadInventory(nameOrPath string, dirs ...string) (*Inventory, error) {
	data, err := readInventory(nameOrPath, dirs)
	if err != nil {
		return nil, err
	}
	inv, err := ParseInventory(data)
	if err != nil {
		return nil, fmt.Errorf("inventory %s: %w", nameOrPath, err)
	}
	inv.Name = nameOrPath
	return inv, nil
}

func readInventory(nameOrPath string, dirs []string) ([]byte, error) {
	if nameOrPath == "" {
		return nil, fmt.Errorf("no inventory named: choose one of %s, or give the path of a file", strings.Join(InventoryNames(), ", "))
	}
	if strings.ContainsRune(nameOrPath, '/') || strings.HasSuffix(nameOrPath, ".yaml") {
		data, err := os.ReadFile(nameOrPath)
		if err != nil {
			return nil, fmt.Errorf("inventory: %w", err)
		}
		return data, nil
	}
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, nameOrPath+".yaml"))
		if err == nil {
			return data, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("inventory: %w", err)
		}
	}
	if data := ofInstanceType(nameOrPath); data != nil {
		return data, nil
	}
	data, err := builtIn.ReadFile(path.Join("inventories", nameOrPath+".yaml"))
	if err != nil {
		where := ""
		if len(dirs) > 0 {
			where = fmt.Sprintf(", or put %s.yaml into %s", nameOrPath, strings.Join(dirs, " or "))
		}
		return nil, fmt.Errorf("unknown inventory %q: choose one of %s, or an instance type like p5.48xlarge%s", nameOrPath, strings.Join(InventoryNames(), ", "), where)
	}
	return data, nil
}

// ParseInventory decodes and checks an inventory; every error names the key.
func ParseInventory(data []byte) (*Inventory, error) {
	var f inventoryFile
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, fmt.Errorf("not a valid inventory: %w", err)
	}
	inv := &Inventory{Text: string(data), DriverVersion: cmp.Or(f.DriverVersion, defaultDriverVersion), NoMPS: f.MPS != nil && !*f.MPS}
	// Versions become file names (libcuda.so.<version>).
	if !regexp.MustCompile(`^\d+(\.\d+){1,3}$`).MatchString(inv.DriverVersion) {
		return nil, fmt.Errorf("driverVersion: %q is not a version like %s (quoted)", f.DriverVersion, defaultDriverVersion)
	}
	var err error
	if inv.CUDADriverVersion, err = parseCUDAVersion(cmp.Or(f.CUDADriverVersion, cudaOf(inv.DriverVersion))); err != nil {
		return nil, err
	}
	if inv.Delays, err = resolveDelays(f.Delays); err != nil {
		return nil, err
	}
	if inv.AMDDriver, err = f.AMD.resolve(); err != nil {
		return nil, err
	}
	if inv.GPUs, inv.AMD, err = resolveGPUs(f.GPUs); err != nil {
		return nil, err
	}
	return inv, nil
}

func parseCUDAVersion(s string) (int, error) {
	m := regexp.MustCompile(`^(\d{1,3})\.(\d)$`).FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("cudaDriverVersion: %q is not a version like \"13.0\" (quoted)", s)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major*1000 + minor*10, nil
}

func resolveDelays(given map[string]metav1.Duration) (Delays, error) {
	d := defaultDelays
	err := setDelays("delays", given, map[string]*time.Duration{
		"createGPUInstance":      &d.CreateGPUInstance,
		"createComputeInstance":  &d.CreateComputeInstance,
		"destroyComputeInstance": &d.DestroyComputeInstance,
		"destroyGPUInstance":     &d.DestroyGPUInstance,
		"setMigMode":             &d.SetMIGMode,
	})
	return d, err
}

// setDelays replaces the delays that a file gives.
func setDelays(path string, given map[string]metav1.Duration, known map[string]*time.Duration) error {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		switch d := given[key].Duration; {
		case known[key] == nil:
			return fmt.Errorf("%s: unknown field %q; there are %s", path, key, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case d < 0:
			return fmt.Errorf("%s.%s: %s is negative", path, key, d)
		default:
			*known[key] = d
		}
	}
	return nil
}
