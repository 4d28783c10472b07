package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	wholeClass = "gpu.tranche.dev"
	smallClass = "gpu-mig-1g-10gb.tranche.dev"
	parentUUID = "gpu.tranche.dev/parentUUID"

	// takenStart is where a partition of each GPU is taken: in the middle, so that the
	// allocator finds some of the others before it fails.
	takenStart = 3

	// hundredNodes is what a scheduler does that tries each node of a cluster.
	hundredNodes = 100
)

// refusal is a claim for several devices on a node with 8 × H100 of which some are taken, so
// that it does not fit.
type refusal struct {
	name string
	// taken takes devices first.
	taken func(context.Context, *allocator.Scheduler, []gpu.GPU) error
	claim *resourceapi.ResourceClaim
}

var (
	// oneGPU does not fit: the allocator looks at each device once.
	oneGPU = refusal{"one GPU", takePartitions, allocator.Claim("one", allocator.Request("gpu", wholeClass, 1))}

	allGPUs       = refusal{"all GPUs by allocationMode: All", takeGPU, allocator.Claim("all", requestAll())}
	eightGPUs     = refusal{"8 GPUs by count", takeGPU, allocator.Claim("count", allocator.Request("gpu", wholeClass, 8))}
	eightRequests = refusal{"8 requests", takeGPU, allocator.Claim("requests", requests(8, wholeClass, nil)...)}

	sevenByPosition = refusal{"7 × 1g of a GPU by position", takePartitions, ofOneGPU(requests(7, smallClass, atStart)...)}
	sevenByCount    = refusal{"7 × 1g of a GPU by count", takePartitions, ofOneGPU(allocator.Request("gpu", smallClass, 7))}
	sevenRequests   = refusal{"7 requests", takePartitions, ofOneGPU(requests(7, smallClass, nil)...)}
)

// severalFigures: the CPU time that the scheduler needs to find that several devices do not fit on a
// node, which it has to find for each node of a cluster.
func (b *bench) severalFigures() []figures.Figure {
	var all []figures.Figure
	for _, f := range []struct {
		refusal, against refusal
		limit            float64
		turns            int
	}{
		{allGPUs, oneGPU, 3, 100},
		{eightGPUs, oneGPU, 10, 100},
		{sevenByPosition, oneGPU, 25, 50},
		{eightGPUs, eightRequests, 0.1, 1},
		{sevenByCount, sevenRequests, 0.1, 1},
		{sevenByPosition, sevenRequests, 0.05, 1},
	} {
		all = append(all, figures.Figure{
			Name:  fmt.Sprintf("refusal of %s, against %s", f.refusal.name, f.against.name),
			Limit: figures.AtMost(f.limit, "×"),
			Measure: func(ctx context.Context) (figures.Reading, error) {
				return b.timeRefusals(ctx, f.refusal, f.against, f.turns)
			},
		})
	}
	return all
}

func (b *bench) timeRefusals(ctx context.Context, ours, other refusal, turns int) (figures.Reading, error) {
	var measures []func() (float64, error)
	for _, r := range []refusal{ours, other} {
		measure, err := b.refuse(ctx, r)
		if err != nil {
			return figures.Reading{}, fmt.Errorf("%s: %w", r.name, err)
		}
		measures = append(measures, measure)
	}
	times, err := inTurns(turns, measures...)
	if err != nil {
		return figures.Reading{}, err
	}
	reading := against(times[0], times[1])
	reading.Seen += fmt.Sprintf("; %d nodes %s of CPU", hundredNodes, duration(hundredNodes*figures.Median(times[0])))
	return reading, nil
}

// refuse prepares a node and returns what measures one refusal on it.
func (b *bench) refuse(ctx context.Context, r refusal) (func() (seconds float64, err error), error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return nil, err
	}
	both, err := layouts(gpus)
	if err != nil {
		return nil, err
	}
	scheduler := both[0].Scheduler
	if err := r.taken(ctx, scheduler, gpus); err != nil {
		return nil, err
	}
	return func() (float64, error) {
		return threadSeconds(func() error {
			grant, err := scheduler.Allocate(ctx, nodeName, r.claim)
			if grant != nil {
				err = errors.New(r.name + ": the claim fits although devices are taken")
			}
			return err
		})
	}, nil
}

// threadSeconds is the CPU time of a function that starts no goroutines. Unlike its duration,
// it does not depend on what else the machine does.
func threadSeconds(f func() error) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before); err != nil {
		return 0, err
	}
	err := f()
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after); err != nil {
		return 0, err
	}
	return time.Duration(after.Nano() - before.Nano()).Seconds(), err
}

// takeGPU takes a whole GPU.
func takeGPU(ctx context.Context, s *allocator.Scheduler, _ []gpu.GPU) error {
	return take(ctx, s, allocator.Request("gpu", wholeClass, 1))
}

// takePartitions takes a partition of each GPU.
func takePartitions(ctx context.Context, s *allocator.Scheduler, gpus []gpu.GPU) error {
	for i := range gpus {
		of := fmt.Sprintf(`device.attributes["gpu.tranche.dev"].?parentUUID.orValue("") == %q`, gpus[i].UUID)
		if err := take(ctx, s, selecting(selecting(allocator.Request("gpu", smallClass, 1), of), atStart(takenStart))); err != nil {
			return err
		}
	}
	return nil
}

func take(ctx context.Context, s *allocator.Scheduler, request resourceapi.DeviceRequest) error {
	grant, err := s.Allocate(ctx, nodeName, allocator.Claim("holder", request))
	if err == nil && grant == nil {
		err = errors.New("a device that has to be taken first is not free")
	}
	return err
}

// atStart selects the MIG partitions at a position.
func atStart(start int) string {
	return fmt.Sprintf(`device.attributes["gpu.tranche.dev"].?placementStart.orValue(-1) == %d`, start)
}

// requests ask for one device each, the one at its own position if at is not nil.
func requests(number int, class string, at func(int) string) []resourceapi.DeviceRequest {
	all := make([]resourceapi.DeviceRequest, number)
	for i := range all {
		all[i] = allocator.Request(fmt.Sprint("gpu-", i), class, 1)
		if at != nil {
			all[i] = selecting(all[i], at(i))
		}
	}
	return all
}

func requestAll() resourceapi.DeviceRequest {
	request := allocator.Request("gpus", wholeClass, 0)
	request.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	return request
}

func ofOneGPU(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return allocator.Together(allocator.Claim("together", requests...), parentUUID)
}

func selecting(request resourceapi.DeviceRequest, expression string) resourceapi.DeviceRequest {
	request.Exactly.Selectors = append(request.Exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	return request
}
