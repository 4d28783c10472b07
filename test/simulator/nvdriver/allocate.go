package nvdriver

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// What may exist side by side on a GPU. Everything here is pure.

// fits says whether an instance of the profile at the start can join those
// that exist: no memory slice twice, and no more engines or SMs than the GPU
// has. That reproduces every instance limit of the table, "+me once" included.
func fits(m *models.NVIDIAModel, instances []nvstate.GPUInstance, p *models.Profile, start int) bool {
	used := p.Engines
	sms := p.Multiprocessors
	for _, i := range instances {
		other, ok := profileByID(m, uint32(i.Profile))
		if !ok || overlap(start, p.Size, i.Start, other.Size) {
			return false
		}
		for e := range used {
			used[e] += other.Engines[e]
		}
		sms += other.Multiprocessors
	}
	for e := range used {
		if used[e] > m.Engines[e] {
			return false
		}
	}
	return sms <= m.Multiprocessors
}

func overlap(start, size, otherStart, otherSize int) bool {
	return start < otherStart+otherSize && otherStart < start+size
}

// chooseStart picks a placement as the driver does for a caller that names
// none: 1g goes to the end first and leaves room for the large ones
// (nvidia-smi mig -cgi 19,14,5 on an A100 gives 6:1, 4:2, 0:4).
func chooseStart(m *models.NVIDIAModel, instances []nvstate.GPUInstance, p *models.Profile) (int, bool) {
	for _, start := range slices.Backward(p.Starts) {
		if fits(m, instances, p, start) {
			return start, true
		}
	}
	return 0, false
}

// remaining counts how many more instances of the profile fit.
func remaining(m *models.NVIDIAModel, instances []nvstate.GPUInstance, p *models.Profile) int {
	all := slices.Clone(instances)
	n := 0
	for _, start := range p.Starts {
		if fits(m, all, p, start) {
			all = append(all, nvstate.GPUInstance{Profile: p.ID, Start: start})
			n++
		}
	}
	return n
}

// instanceID is the id of a GPU instance at a start. The driver numbers the
// whole GPU 0, its halves 1 and 2, its quarters 3 to 6 and its eighths 7 to
// 14, as nvidia-smi mig -lgi shows (7 at 0:1 … 13 at 6:1, 5 at 4:2, 1 at 0:4).
// It does not always give halves in the order of their starts, so nothing
// should read a placement out of an id.
func instanceID(m *models.NVIDIAModel, p *models.Profile, start int) int {
	pieces := m.MemorySlices / p.Size
	return pieces - 1 + start/p.Size
}

// computeProfiles maps NVML_COMPUTE_INSTANCE_PROFILE_* to compute slices. The
// profiles 1_SLICE_REV1 (7) and 7_SLICE_NVL (8) are answered NOT_SUPPORTED: no
// GPU of the table is known to have them
// (https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1480).
var computeProfiles = map[int]int{0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6}

// computeStarts lists the compute slices at which a compute instance of so
// many slices can start in a GPU instance of the profile; none if there is no
// such compute profile. nvidia-smi mig -lcip lists 1c, 2c, 3c, 4c, 7c below 7g,
// 1c, 2c, 4c below 4g and 1c, 2c, 3c below 3g.
func computeStarts(p *models.Profile, size int) []int {
	if size > p.ComputeSlices || (size < p.ComputeSlices && 2*size > p.ComputeSlices+1) {
		return nil
	}
	step := size
	if size == 3 {
		step = 4 // 3c starts at a half
	}
	var starts []int
	for s := 0; s+size <= p.ComputeSlices; s += step {
		starts = append(starts, s)
	}
	return starts
}

// computeFits says whether a compute instance can join those that exist.
func computeFits(i *nvstate.GPUInstance, start, size int) bool {
	return !slices.ContainsFunc(i.Compute, func(c nvstate.ComputeInstance) bool {
		return overlap(start, size, c.Start, c.Size)
	})
}

// lowestFree returns the lowest number from 0 that is not taken.
func lowestFree(taken []int) int {
	for n := 0; ; n++ {
		if !slices.Contains(taken, n) {
			return n
		}
	}
}

// freeComputeID returns the id of the next compute instance.
func freeComputeID(i *nvstate.GPUInstance) int {
	var taken []int
	for _, c := range i.Compute {
		taken = append(taken, c.ID)
	}
	return lowestFree(taken)
}

// freeMIGIndex returns the index of the next MIG device of the GPU. An index
// stays with its device, so that destroying one leaves a hole: the header
// promises neither order nor density, and callers must look at every index.
func freeMIGIndex(g *nvstate.GPU) int {
	var taken []int
	for _, i := range g.Instances {
		for _, c := range i.Compute {
			taken = append(taken, c.MIGIndex)
		}
	}
	return lowestFree(taken)
}
