package fleet

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// Chart has the chart's device classes. It is a path from the root of the repository.
const Chart = "deployments/helm/testdata/defaults.yaml"

const nodeName = "node"

// Layout is how a GPU is published, with the answers of the scheduler's allocator for each state
// of it. GPUs of a node share no counters, and the allocator takes the first GPU in order that
// fits, so the answers for one GPU are enough. A Layout does not change.
type Layout struct {
	// GPU has the devices, as placements in the order in which they are published.
	GPU gpu.GPU
	// Empty is the state in which nothing is held.
	Empty *State
	// byHeld has the states by the devices that are held.
	byHeld map[uint64]*State
}

// State is what is held on a GPU.
type State struct {
	// Held has a bit for each device of the GPU, in their order.
	Held uint64
	// Free is the number of memory slices that nothing holds.
	Free int
	// First is the device that the allocator gives to a kind, up to one whole GPU; -1: none.
	First [workload.WholeGPU + 1]int
	// Devices are those of the kind that fit.
	Devices [workload.WholeGPU + 1][]int
	// After is the state after a device is taken or given back, by device.
	After []*State
}

// h100s reads the 8 GPUs of a node as the plugin does, with what it offers.
func h100s(ctx context.Context, dir string) ([]gpu.GPU, error) {
	inv, err := models.LoadInventory("h100x8")
	if err != nil {
		return nil, err
	}
	gpus, err := nodes.NVIDIAGPUs(ctx, inv, "packing", dir)
	nodes.OnlyOffered(gpus)
	return gpus, err
}

// Fits reports whether a device can be taken.
func (s *State) Fits(device int) bool { return s.Held&(1<<device) == 0 && s.After[device] != nil }

// Published is the layout of an H100 as the plugin publishes it, or with the devices of each
// profile by ascending starts. chart has the device classes.
func Published(ctx context.Context, chart string, ascending bool) (*Layout, error) {
	classes, err := allocator.Classes(chart)
	if err != nil {
		return nil, fmt.Errorf("read the chart's device classes (run this from the root of the repository): %w", err)
	}
	gpus, err := h100s(ctx, "")
	if err != nil {
		return nil, err
	}
	if ascending {
		ascend(gpus)
	}
	return newLayout(ctx, gpus[0], classes)
}

// ascend sorts the placements of each profile by ascending starts.
func ascend(gpus []gpu.GPU) {
	for _, g := range gpus {
		at := map[string][]int{}
		for i, p := range g.Placements {
			at[p.Profile] = append(at[p.Profile], i)
		}
		for _, indices := range at {
			of := make([]gpu.Placement, len(indices))
			for j, i := range indices {
				of[j] = g.Placements[i]
			}
			slices.SortStableFunc(of, func(a, b gpu.Placement) int { return a.Start - b.Start })
			for j, i := range indices {
				g.Placements[i] = of[j]
			}
		}
	}
}

// newLayout asks the allocator for each state that a GPU can be in, with its devices in the order
// of its placements. classes are the chart's.
func newLayout(ctx context.Context, g gpu.GPU, classes []*resourceapi.DeviceClass) (*Layout, error) {
	published, err := nodes.Slices(nodeName, []gpu.GPU{g})
	if err != nil {
		return nil, err
	}
	l := &Layout{GPU: g, byHeld: map[uint64]*State{}}
	scheduler := allocator.New(classes, published)
	l.Empty, err = l.explore(ctx, scheduler, 0)
	return l, err
}

// explore returns a state, with all states that follow.
func (l *Layout) explore(ctx context.Context, scheduler *allocator.Scheduler, held uint64) (*State, error) {
	if s := l.byHeld[held]; s != nil {
		return s, nil
	}
	s := &State{Held: held, Free: workload.MemorySlices, After: make([]*State, len(l.GPU.Placements))}
	l.byHeld[held] = s
	var there []int
	for d, p := range l.GPU.Placements {
		if held&(1<<d) != 0 {
			there = append(there, d)
			s.Free -= slicesOf(p)
		}
	}
	for k := range s.First {
		scheduler.ReleaseAll()
		scheduler.Hold(l.grant(there...))
		var err error
		if s.First[k], err = l.ask(ctx, scheduler, workload.Kinds[k]); err != nil {
			return nil, err
		}
		for d, p := range l.GPU.Placements {
			if isKind(p, workload.Kinds[k]) && l.fits(there, p) {
				s.Devices[k] = append(s.Devices[k], d)
			}
		}
		if (s.First[k] >= 0) != (len(s.Devices[k]) > 0) {
			return nil, fmt.Errorf("%s beside %v: the allocator gives device %d, by the counters %v fit", workload.Kinds[k], there, s.First[k], s.Devices[k])
		}
	}
	for _, devices := range s.Devices {
		for _, d := range devices {
			next, err := l.explore(ctx, scheduler, held|1<<d)
			if err != nil {
				return nil, err
			}
			s.After[d], next.After[d] = next, s
		}
	}
	return s, nil
}

// ask returns the device that the allocator gives, -1 if none.
func (l *Layout) ask(ctx context.Context, scheduler *allocator.Scheduler, k workload.Kind) (int, error) {
	grant, err := scheduler.Allocate(ctx, nodeName, allocator.Claim("claim", Request(k)))
	if err != nil || grant == nil {
		return -1, err
	}
	name := grant.Devices()[0]
	return slices.IndexFunc(l.GPU.Placements, func(p gpu.Placement) bool { return p.Name() == name }), nil
}

// grant holds devices of a GPU.
func (l *Layout) grant(devices ...int) *allocator.Grant {
	g := &allocator.Grant{}
	for _, d := range devices {
		g.Result.Devices.Results = append(g.Result.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Driver: names.DriverName, Pool: names.PoolName(nodeName), Device: l.GPU.Placements[d].Name(),
		})
	}
	return g
}

// fits reports whether a placement fits beside others by the counters.
func (l *Layout) fits(there []int, p gpu.Placement) bool {
	used := gpu.Counters{}
	for _, d := range there {
		used.Add(l.GPU.Placements[d].Consumes)
	}
	used.Add(p.Consumes)
	return used.Exceeds(l.GPU.Counters) == ""
}

// Request is what a claim of a kind asks for.
func Request(k workload.Kind) resourceapi.DeviceRequest {
	class := "gpu.tranche.dev"
	if k.Profile != "" {
		class = "gpu-mig-" + gpu.ProfileSlug(k.Profile) + ".tranche.dev"
	}
	return allocator.Request("gpu", class, int64(k.Count))
}

// isKind reports whether one device of a kind can be a placement.
func isKind(p gpu.Placement, k workload.Kind) bool {
	if k.Profile == "" {
		return p.Type == gpu.TypeGPU
	}
	return p.Type == gpu.TypeMIG && p.Profile == k.Profile
}

func slicesOf(p gpu.Placement) int {
	if p.Type == gpu.TypeGPU {
		return workload.MemorySlices
	}
	return p.Size
}
