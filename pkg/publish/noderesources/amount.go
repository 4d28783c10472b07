package noderesources

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// wholeGPU is the compute of a GPU, whatever its model. So a pod that runs on any GPU requests the
// same on all.
const wholeGPU = 1000

// Amount is an amount of both resources.
type Amount struct {
	// MemoryMiB is GPU memory, in MiB.
	MemoryMiB int64
	// Compute is in thousandths of a GPU.
	Compute int64
}

// WholeGPU is what a whole GPU of any model takes.
var WholeGPU = Amount{Compute: wholeGPU}

// Of returns what the GPUs of a node give.
func Of(gpus []gpu.GPU) Amount {
	var bytes int64
	for i := range gpus {
		bytes += gpus[i].Memory
	}
	// Rounded up, since a node must never seem to have less.
	return Amount{MemoryMiB: (bytes + gpu.MiB - 1) / gpu.MiB, Compute: int64(len(gpus)) * wholeGPU}
}

// List returns the amount as resources of a node.
func (a Amount) List() corev1.ResourceList {
	return corev1.ResourceList{
		names.ResourceGPUMemory:  *resource.NewQuantity(a.MemoryMiB*gpu.MiB, resource.BinarySI),
		names.ResourceGPUCompute: *resource.NewQuantity(a.Compute, resource.DecimalSI),
	}
}

func (a Amount) plus(b Amount) Amount {
	return Amount{MemoryMiB: a.MemoryMiB + b.MemoryMiB, Compute: a.Compute + b.Compute}
}

func (a Amount) times(n int64) Amount {
	return Amount{MemoryMiB: a.MemoryMiB * n, Compute: a.Compute * n}
}

// Least returns the lesser of each part of two amounts.
func (a Amount) Least(b Amount) Amount {
	return Amount{MemoryMiB: min(a.MemoryMiB, b.MemoryMiB), Compute: min(a.Compute, b.Compute)}
}

// ofPlacement returns what a holder of a whole GPU or of a partition takes.
func ofPlacement(p gpu.Placement) Amount {
	return Amount{MemoryMiB: p.Memory / gpu.MiB, Compute: ComputeOf(p)}
}

// migSlices and mostXCCs are the most parts that a GPU of a vendor is divided into. GPUs with fewer
// are filled by the memory of their partitions: they have as many parts of memory as of compute.
const (
	migSlices = 7 // NVIDIA, MIG user guide: A30 and RTX PRO 6000 have 4
	mostXCCs  = 8 // aqua_vanjaram.c: MI300A has 6, MI308X 4
)

// ComputeOf returns the compute of a whole GPU or of a partition, in thousandths of a GPU, rounded down.
func ComputeOf(p gpu.Placement) int64 {
	switch p.Type {
	case gpu.TypeGPU:
		return wholeGPU
	case gpu.TypeMIG:
		digits, _, _ := strings.Cut(p.Profile, "g.")
		n, _ := strconv.ParseInt(digits, 10, 64) // 0 if the profile has another kind of name
		return min(n, migSlices) * wholeGPU / migSlices
	case gpu.TypeXCP:
		mode, _ := xcp.ModeOf(p.Profile)
		for _, xccs := range []int{mostXCCs, 6} { // TPX needs a number that 3 divides
			if n := mode.Count(xccs); n > 0 {
				return wholeGPU / int64(n)
			}
		}
	}
	return 0
}
