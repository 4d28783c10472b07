package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Report is what the hardware says. What a GPU or its driver does not tell is
// absent.
type Report struct {
	Drivers []Driver `json:"drivers"`
	GPUs    []GPU    `json:"gpus"`
}

// Driver is the kernel driver of one vendor's GPUs.
type Driver struct {
	Vendor  gpu.Vendor `json:"vendor"`
	Version string     `json:"version,omitempty"`
	// CUDAVersion is the newest that an NVIDIA driver serves.
	CUDAVersion string `json:"cudaVersion,omitempty"`
	// Error says why the driver tells nothing.
	Error string `json:"error,omitempty"`
}

// GPU is one GPU.
type GPU struct {
	// Name is the stable name ("gpu-0000-c1-00-0").
	Name       string     `json:"name"`
	Vendor     gpu.Vendor `json:"vendor"`
	PCIAddress string     `json:"pciAddress"`
	// ID is the vendor's own handle, for people: "NVML index 3".
	ID string `json:"id,omitempty"`
	// DeviceNode is the GPU's own ("/dev/nvidia3").
	DeviceNode  string `json:"deviceNode,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	ProductName string `json:"productName,omitempty"`

	// MIG is absent on GPUs that do not know it.
	MIG *Switch `json:"mig,omitempty"`
	// ComputePartition and MemoryPartition are the modes that an AMD GPU is in
	// ("CPX", "NPS1"), ComputePartitions those that it can be switched to.
	ComputePartition  string       `json:"computePartition,omitempty"`
	ComputePartitions []string     `json:"computePartitions,omitempty"`
	MemoryPartition   string       `json:"memoryPartition,omitempty"`
	Memory            *Memory      `json:"memory,omitempty"`
	Utilization       *Utilization `json:"utilization,omitempty"`
	// Temperature is in degrees Celsius.
	Temperature *uint32 `json:"temperatureCelsius,omitempty"`
	Power       *Power  `json:"power,omitempty"`
	Persistence *bool   `json:"persistenceMode,omitempty"`
	// ComputeMode says who may start programs on an NVIDIA GPU.
	ComputeMode string `json:"computeMode,omitempty"`
	ECC         *ECC   `json:"ecc,omitempty"`

	Partitions []Partition `json:"partitions,omitempty"`
	Processes  []Process   `json:"processes,omitempty"`

	// Unhealthy says what is wrong with the GPU.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Obstacles say what cannot be had of the GPU now, and why.
	Obstacles []string `json:"obstacles,omitempty"`
	// Errors say what could not be read.
	Errors []string `json:"errors,omitempty"`
	// Note is for the caller, to say more about the GPU.
	Note string `json:"note,omitempty"`
}

// Switch is something that a reset of the GPU may change.
type Switch struct {
	On bool `json:"on"`
	// Pending is what it is going to be after the next reset.
	Pending bool `json:"pending"`
}

// Memory is in bytes.
type Memory struct {
	Total uint64 `json:"totalBytes"`
	// Used is absent where the driver does not tell.
	Used *uint64 `json:"usedBytes,omitempty"`
	// Reserved is what the driver keeps for itself, beside Used.
	Reserved uint64 `json:"reservedBytes,omitempty"`
}

// Utilization is in percent of the time.
type Utilization struct {
	Compute uint32 `json:"computePercent"`
	Memory  uint32 `json:"memoryPercent"`
}

// Power is in milliwatts.
type Power struct {
	Draw  uint32 `json:"drawMilliwatts"`
	Limit uint32 `json:"limitMilliwatts,omitempty"`
}

// ECC is the memory's error correction.
type ECC struct {
	// Switch is absent where the error correction cannot be switched.
	*Switch
	// Uncorrected counts the errors since the driver was loaded.
	Uncorrected *uint64 `json:"uncorrectedErrors,omitempty"`
	// RemapPending and RemapFailed are about bad rows of memory, which a reset
	// replaces. NVIDIA GPUs with partitions do not tell.
	RemapPending bool `json:"remapPending,omitempty"`
	RemapFailed  bool `json:"remapFailed,omitempty"`
}

// Partition is a piece of a GPU that exists now.
type Partition struct {
	// Name is the name of the device that it is ("gpu-0000-c1-00-0-mig-1g-10gb-4").
	Name string   `json:"name"`
	Type gpu.Type `json:"type"`
	// ID is the vendor's own handle, for people: "GI 3", "KFD node 5".
	ID      string `json:"id"`
	Profile string `json:"profile"`
	// Start is the first memory slice of a MIG partition, and the index of an AMD
	// partition. Size is in memory slices, absent for AMD.
	Start  int     `json:"start"`
	Size   int     `json:"size,omitempty"`
	Memory *Memory `json:"memory,omitempty"`
	// UUIDs are those of what runs programs in it: MIG can have several.
	UUIDs []string `json:"uuids,omitempty"`
	// DeviceNode is the partition's own, if it has one ("/dev/dri/renderD129").
	DeviceNode string `json:"deviceNode,omitempty"`
	// HalfMade says what is missing of a partition on which nothing can run.
	HalfMade string `json:"halfMade,omitempty"`
	// Note is for the caller, to say whose it is.
	Note string `json:"note,omitempty"`
}

// Process is a program that uses the GPU.
type Process struct {
	PID int `json:"pid"`
	// Name is empty when the driver does not tell it, as in a container that
	// does not see the node's processes.
	Name string `json:"name,omitempty"`
	// Memory is in bytes, absent when the driver does not tell.
	Memory *uint64 `json:"memoryBytes,omitempty"`
	// Partition is the ID of the partition that it uses, absent when it uses the
	// whole GPU.
	Partition string `json:"partition,omitempty"`
}

// Partition is what the vocabulary calls the partition, on a GPU.
func (p *Partition) Partition(pciAddress string) gpu.Partition {
	out := gpu.Partition{
		GPU: pciAddress, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size,
		ID: p.ID, Complete: p.HalfMade == "",
	}
	if len(p.UUIDs) > 0 {
		out.UUID = p.UUIDs[0]
	}
	return out
}

// Source is a vendor's driver.
type Source struct {
	Vendor gpu.Vendor
	// Report and Err are what it answered.
	Report Report
	Err    error
}

// Merge brings together what several drivers say, the GPUs in PCI order. A
// driver that fails is in the report with the reason; if all fail, so does Merge.
func Merge(sources ...Source) (Report, error) {
	merged := Report{Drivers: []Driver{}, GPUs: []GPU{}}
	var errs []error
	for _, s := range sources {
		if s.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Vendor.Title(), s.Err))
			merged.Drivers = append(merged.Drivers, Driver{Vendor: s.Vendor, Error: s.Err.Error()})
			continue
		}
		merged.Drivers = append(merged.Drivers, s.Report.Drivers...)
		merged.GPUs = append(merged.GPUs, s.Report.GPUs...)
	}
	if len(errs) > 0 && len(errs) == len(sources) {
		return Report{}, errors.Join(errs...)
	}
	slices.SortStableFunc(merged.GPUs, func(a, b GPU) int { return strings.Compare(a.PCIAddress, b.PCIAddress) })
	return merged, nil
}

// WriteJSON writes the report for programs.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
