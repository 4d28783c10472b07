package convert

import (
	"encoding/json"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/strict"
)

// parameters are GpuConfig and MigDeviceConfig (api/nvidia.com/resource/v1beta1 of NVIDIA's driver).
type parameters struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Sharing    *sharing `json:"sharing"`
}

type sharing struct {
	Strategy          string             `json:"strategy"`
	TimeSlicingConfig *timeSlicingConfig `json:"timeSlicingConfig"`
	MPSConfig         *mpsConfig         `json:"mpsConfig"`
}

type timeSlicingConfig struct {
	Interval string `json:"interval"`
}

type mpsConfig struct {
	Threads   *int                         `json:"defaultActiveThreadPercentage"`
	Memory    *resource.Quantity           `json:"defaultPinnedDeviceMemoryLimit"`
	PerDevice map[string]resource.Quantity `json:"defaultPerDevicePinnedMemoryLimit"`
	MultiUser *bool                        `json:"multiUser"`
}

// config reports whether parameters are removed: those of NVIDIA's driver, which set how a GPU is shared. With
// both drivers, a claim has its devices to itself, and containers that name the same request take
// turns.
func (c *converter) config(path string, o *resourceapi.OpaqueDeviceConfiguration) bool {
	if o == nil || o.Driver != nvidiaDriver {
		return false
	}
	c.changed = true
	var meta metav1.TypeMeta
	if err := json.Unmarshal(o.Parameters.Raw, &meta); err != nil || meta.Kind != "GpuConfig" && meta.Kind != "MigDeviceConfig" {
		c.problems.Add(path, "has parameters of kind %q, which have no counterpart: GpuConfig and MigDeviceConfig are converted", meta.Kind)
		return true
	}
	var p parameters
	if err := strict.Decode(meta.Kind, o.Parameters.Raw, &p); err != nil {
		c.problems.Add(path, "%v", err)
		return true
	}
	switch s := p.Sharing; {
	case s == nil:
		c.note(path, "%s is left out: it sets nothing", p.Kind)
	case s.Strategy == "TimeSlicing" && p.Kind == "MigDeviceConfig":
		c.note(path, "MigDeviceConfig is left out: containers with the same claim take turns on a partition anyway")
	case s.Strategy == "TimeSlicing":
		text := "GpuConfig is left out: containers with the same claim take turns on the GPU anyway"
		if s.TimeSlicingConfig != nil && s.TimeSlicingConfig.Interval != "" && s.TimeSlicingConfig.Interval != "Default" {
			text += fmt.Sprintf(", with the default interval, not %s. Shares have one by sharing.timeSlice of a PartitionProfile", s.TimeSlicingConfig.Interval)
		}
		c.note(path, "%s", text)
	case s.Strategy == "MPS" && p.Kind == "MigDeviceConfig":
		c.problems.Add(path, "has strategy MPS for partitions, and MPS serves whole GPUs only: remove it, and containers with the same claim take turns")
	case s.Strategy == "MPS":
		c.problems.Add(path, "%s", s.MPSConfig.remedy())
	default:
		c.problems.Add(path, "has strategy %q, it can be TimeSlicing or MPS", s.Strategy)
	}
	return true
}

// remedy returns what to request instead of a GPU that several processes share by MPS. NVIDIA's driver
// limits each process of the claim, Tranche limits each claim.
func (m *mpsConfig) remedy() string {
	class, amounts := ourFraction, []string{`fraction: "0.5"`}
	if m != nil && m.Memory != nil {
		class, amounts = ourMemory, []string{"memory: " + m.Memory.String()}
	}
	if m != nil && m.Threads != nil {
		amounts = append(amounts, fmt.Sprintf(`computePercent: "%d"`, *m.Threads))
	}
	text := fmt.Sprintf("has strategy MPS, which limits each process of the claim: write a claim for each container, with class %s and capacity.requests {%s}, "+
		"for nodes whose PartitionProfile has sharing.strategy MPS", class, strings.Join(amounts, ", "))
	if m != nil && len(m.PerDevice) > 0 {
		text += "; limits for single devices (defaultPerDevicePinnedMemoryLimit) have no counterpart"
	}
	return text
}
