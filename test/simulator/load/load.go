package load

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"
)

// Use is what a process does.
type Use struct {
	// Compute is how many percent of the compute units of its GPU or partition are busy
	// with it.
	Compute int `json:"compute,omitempty"`
	// MemoryMiB is what it has of the memory; 0: 512.
	MemoryMiB int `json:"memoryMiB,omitempty"`
}

// defaultMiB is the memory of a process that does not say how much it has.
const defaultMiB = 512

// Memory is what the process has of the memory, in bytes.
func (u Use) Memory() uint64 {
	if u.MemoryMiB == 0 {
		return defaultMiB << 20
	}
	return uint64(u.MemoryMiB) << 20 //nolint:gosec // checked
}

// Check returns what is wrong, with the key.
func (u Use) Check() error {
	switch {
	case u.Compute < 0 || u.Compute > 100:
		return fmt.Errorf("compute: %d is no percentage", u.Compute)
	case u.MemoryMiB < 0:
		return fmt.Errorf("memoryMiB: %d is negative", u.MemoryMiB)
	}
	return nil
}

// Load is what goes on on a GPU without any process that has a name.
type Load struct {
	// GPU is a PCI address, or * for every GPU.
	GPU string `json:"gpu"`
	// Instance is the id of a GPU instance; without it, the load is on all instances, or on
	// the GPU if it has none.
	Instance *int `json:"instance,omitempty"`
	// Compute is how many percent of the compute units are busy, Memory how many percent of
	// the memory are in use.
	Compute int `json:"compute,omitempty"`
	Memory  int `json:"memory,omitempty"`
	// Wave lets Compute go up and down, at each instance at another time.
	Wave bool `json:"wave,omitempty"`
	// Throttled are the reasons why the GPU's clocks are lower, in NVML's bits by the names
	// of Reasons.
	Throttled []string `json:"throttled,omitempty"`
	// Corrected and Uncorrected are how many memory errors the GPU has counted.
	Corrected   int `json:"corrected,omitempty"`
	Uncorrected int `json:"uncorrected,omitempty"`
}

// Reasons are the bits of NVML's clocks event reasons (nvml.h, nvmlClocksEventReasons).
var Reasons = map[string]uint64{
	"SwPowerCap": 0x4, "HwSlowdown": 0x8, "SyncBoost": 0x10,
	"SwThermalSlowdown": 0x20, "HwThermalSlowdown": 0x40, "HwPowerBrakeSlowdown": 0x80,
}

// Check returns what is wrong, with the key.
func (l Load) Check() error {
	for key, percent := range map[string]int{"compute": l.Compute, "memory": l.Memory} {
		if percent < 0 || percent > 100 {
			return fmt.Errorf("%s: %d is no percentage", key, percent)
		}
	}
	for i, reason := range l.Throttled {
		if Reasons[reason] == 0 {
			return fmt.Errorf("throttled[%d]: %q is no reason for lower clocks, such as SwPowerCap", i, reason)
		}
	}
	switch {
	case l.Instance != nil && *l.Instance < 0:
		return fmt.Errorf("instance: %d is negative", *l.Instance)
	case l.Corrected < 0 || l.Uncorrected < 0:
		return errors.New("corrected: errors cannot be less than none")
	}
	return nil
}

// On reports whether the load is on an instance of a GPU. Nil is the GPU without instances.
func (l Load) On(pci string, instance *int) bool {
	if l.GPU != "*" && l.GPU != pci {
		return false
	}
	return l.Instance == nil || instance != nil && *instance == *l.Instance
}

// period is how long a wave takes.
const period = 4 * time.Minute

// ComputeAt is Compute at a time, on something with a name.
func (l Load) ComputeAt(name string, at time.Time) float64 {
	if !l.Wave {
		return float64(l.Compute)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	shift := float64(h.Sum32()%1000) / 1000
	turn := float64(at.UnixMilli()%period.Milliseconds()) / float64(period.Milliseconds())
	return min(100, max(0, float64(l.Compute)*(1+0.6*math.Sin(2*math.Pi*(turn+shift)))))
}
