package main

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	nodeName = "node"
	// chart is where the chart's device classes are, seen from the root of the repository.
	chart = "deployments/helm/testdata/defaults.yaml"
)

// layout is how a GPU is published, with the answers of the scheduler's allocator for each state
// of it. GPUs of a node share no counters, and the allocator takes the first GPU in order that
// fits, so the answers for one GPU are enough. It is not changed after newLayout.
type layout struct {
	gpu gpu.GPU
	// byHeld has the states by the devices that are held.
	byHeld map[uint64]*gpuState
	empty  *gpuState
}

// gpuState is what is held on a GPU.
type gpuState struct {
	// held has a bit for each device of the GPU, in their order.
	held uint64
	// free is the number of memory slices that nothing holds.
	free int
	// first is the device that the allocator gives to a kind, up to one whole GPU; -1: none.
	first [wholeGPU + 1]int
	// devices are those of the kind that fit.
	devices [wholeGPU + 1][]int
	// after is the state after a device is taken or given back, by device.
	after []*gpuState
}

// h100s reads the 8 GPUs of a node as the plugin does.
func h100s(ctx context.Context, dir string) ([]gpu.GPU, error) {
	inv, err := models.LoadInventory("h100x8")
	if err != nil {
		return nil, err
	}
	return nodes.NVIDIAGPUs(ctx, inv, "packing", dir)
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
func newLayout(ctx context.Context, g gpu.GPU, classes []*resourceapi.DeviceClass) (*layout, error) {
	published, err := nodes.Slices(nodeName, []gpu.GPU{g})
	if err != nil {
		return nil, err
	}
	l := &layout{gpu: g, byHeld: map[uint64]*gpuState{}}
	scheduler := allocator.New(classes, published)
	l.empty, err = l.explore(ctx, scheduler, 0)
	return l, err
}

// explore returns a state, with all states that follow.
func (l *layout) explore(ctx context.Context, scheduler *allocator.Scheduler, held uint64) (*gpuState, error) {
	if s := l.byHeld[held]; s != nil {
		return s, nil
	}
	s := &gpuState{held: held, free: memorySlices, after: make([]*gpuState, len(l.gpu.Placements))}
	l.byHeld[held] = s
	var there []int
	for d, p := range l.gpu.Placements {
		if held&(1<<d) != 0 {
			there = append(there, d)
			s.free -= slicesOf(p)
		}
	}
	for k := range s.first {
		scheduler.ReleaseAll()
		scheduler.Hold(l.grant(there...))
		var err error
		if s.first[k], err = l.ask(ctx, scheduler, kinds[k]); err != nil {
			return nil, err
		}
		for d, p := range l.gpu.Placements {
			if isKind(p, kinds[k]) && l.fits(there, p) {
				s.devices[k] = append(s.devices[k], d)
			}
		}
		if (s.first[k] >= 0) != (len(s.devices[k]) > 0) {
			return nil, fmt.Errorf("%s beside %v: the allocator gives device %d, by the counters %v fit", kinds[k], there, s.first[k], s.devices[k])
		}
	}
	for _, devices := range s.devices {
		for _, d := range devices {
			next, err := l.explore(ctx, scheduler, held|1<<d)
			if err != nil {
				return nil, err
			}
			s.after[d], next.after[d] = next, s
		}
	}
	return s, nil
}

// ask returns the device that the allocator gives, -1 if none.
func (l *layout) ask(ctx context.Context, scheduler *allocator.Scheduler, k kind) (int, error) {
	grant, err := scheduler.Allocate(ctx, nodeName, allocator.Claim("claim", request(k)))
	if err != nil || grant == nil {
		return -1, err
	}
	name := grant.Devices()[0]
	return slices.IndexFunc(l.gpu.Placements, func(p gpu.Placement) bool { return p.Name() == name }), nil
}

// grant holds devices of a GPU.
func (l *layout) grant(devices ...int) *allocator.Grant {
	g := &allocator.Grant{}
	for _, d := range devices {
		g.Result.Devices.Results = append(g.Result.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Driver: gpu.DriverName, Pool: gpu.PoolName(nodeName), Device: l.gpu.Placements[d].Name(),
		})
	}
	return g
}

// fits tells whether a placement fits beside others by the counters.
func (l *layout) fits(there []int, p gpu.Placement) bool {
	used := gpu.Counters{}
	for _, d := range there {
		used.Add(l.gpu.Placements[d].Consumes)
	}
	used.Add(p.Consumes)
	return used.Exceeds(l.gpu.Counters) == ""
}

// request is what a claim of a kind asks for.
func request(k kind) resourceapi.DeviceRequest {
	class := "gpu.tranche.dev"
	if k.profile != "" {
		class = "gpu-mig-" + gpu.ProfileSlug(k.profile) + ".tranche.dev"
	}
	return allocator.Request("gpu", class, int64(k.count))
}

// isKind tells whether one device of a kind can be a placement.
func isKind(p gpu.Placement, k kind) bool {
	if k.profile == "" {
		return p.Type == gpu.TypeGPU
	}
	return p.Type == gpu.TypeMIG && p.Profile == k.profile
}

func slicesOf(p gpu.Placement) int {
	if p.Type == gpu.TypeGPU {
		return memorySlices
	}
	return p.Size
}
