package main

import (
	"context"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	// shareClass is the chart's, for shares of whole GPUs by fraction.
	shareClass = "gpu-fraction-share.tranche.dev"
	// sharesInCluster are held while one more is allocated.
	sharesInCluster = 1000
	// sharersOfAGPU hold shares of each GPU in the measurement of Prepare, as
	// many as a GPU has partitions of the other kind.
	sharersOfAGPU = 7
)

// shareFigures: shares, against partitions in the same run and against none.
func (b *bench) shareFigures() []figures.Figure {
	return []figures.Figure{
		{
			Name:    fmt.Sprintf("CPU time of Prepare + Unprepare of a share without daemon at %d prepared, against a 1g", preparedOfEach),
			Limit:   figures.AtMost(1.1, "×"),
			Measure: b.timeSharePrepare,
		},
		{
			Name:    fmt.Sprintf("of %d shares of one GPU, those not granted or not prepared", profile.DefaultMaxClients),
			Limit:   figures.AtMost(0, "shares"),
			Measure: b.countShares,
		},
		{
			Name:    fmt.Sprintf("allocation of a share with %d in the cluster, against none", sharesInCluster),
			Limit:   figures.AtMost(15, "×"),
			Measure: b.timeShareAllocation,
		},
	}
}

// timeSharePrepare: nothing has to be made or set, so that what is left is the
// driver's own time, as it is for MIG on hardware that answers at once.
func (b *bench) timeSharePrepare(ctx context.Context) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	shared, err := nodes.WithShares(gpus, false)
	if err != nil {
		return figures.Reading{}, err
	}
	var claims []*resourceapi.ResourceClaim
	for n := range preparedOfEach {
		claims = append(claims, shareClaimFor(n, shared[n/sharersOfAGPU].Name()))
	}
	sharer := share.New(share.Config{})
	shares, err := b.rigFor(ctx, &memory{gpus: shared, shares: sharer}, claims)
	if err != nil {
		return figures.Reading{}, fmt.Errorf("prepare %d shares: %w", preparedOfEach, err)
	}
	defer shares.stop()
	// The same plugin, with the same devices, has both.
	partitions, err := b.rigWith(ctx, &memory{gpus: shared, shares: sharer}, preparedOfEach)
	if err != nil {
		return figures.Reading{}, fmt.Errorf("prepare %d partitions: %w", preparedOfEach, err)
	}
	defer partitions.stop()
	times, err := inTurns(preparePairs,
		func() (float64, error) { return shares.cpuOfPair(ctx) },
		func() (float64, error) { return partitions.cpuOfPair(ctx) },
	)
	if err != nil {
		return figures.Reading{}, err
	}
	return against(times[0], times[1]), nil
}

// askShare asks for a share of this size on a node; nil when it has to wait.
func askShare(ctx context.Context, s *allocator.Scheduler, node string) (*allocator.Grant, error) {
	request := allocator.Request("gpu", shareClass, 1)
	request.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
		names.CapacityFraction: resource.MustParse(shareSize),
	}}
	return s.Allocate(ctx, node, allocator.Claim("claim", request))
}

// countShares fills one GPU with shares: its clients are used up before its
// memory. The one after them has to wait.
func (b *bench) countShares(ctx context.Context) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	if gpus, err = nodes.WithShares(gpus[:1], false); err != nil {
		return figures.Reading{}, err
	}
	scheduler, err := schedulerOf(map[string][]gpu.GPU{nodeName: gpus})
	if err != nil {
		return figures.Reading{}, err
	}
	r, err := b.newRig(ctx, &memory{gpus: gpus, shares: share.New(share.Config{})})
	if err != nil {
		return figures.Reading{}, err
	}
	defer r.stop()
	granted, prepared := 0, 0
	for n := range profile.DefaultMaxClients {
		grant, err := askShare(ctx, scheduler, nodeName)
		if err != nil {
			return figures.Reading{}, err
		}
		if grant == nil {
			continue
		}
		granted++
		c := shareClaimFor(n, gpus[0].Name())
		c.Status.Allocation = &grant.Result
		if err := errors.Join(r.allocate(c), r.prepare(ctx, c)); err != nil {
			return figures.Reading{}, fmt.Errorf("share %d: %w", n+1, err)
		}
		prepared++
	}
	switch more, err := askShare(ctx, scheduler, nodeName); {
	case err != nil:
		return figures.Reading{}, err
	case more != nil:
		return figures.Reading{}, fmt.Errorf("share %d of a GPU with %d clients is granted", len(scheduler.Held()), profile.DefaultMaxClients)
	}
	return figures.Reading{
		Value: float64(profile.DefaultMaxClients - prepared),
		Seen:  fmt.Sprintf("%d granted, %d prepared, the next one waits", granted, prepared),
	}, nil
}

// schedulerOf is a scheduler that sees nodes with these GPUs.
func schedulerOf(fleet map[string][]gpu.GPU) (*allocator.Scheduler, error) {
	classes, err := allocator.Classes(chart)
	if err != nil {
		return nil, fmt.Errorf("read the chart's device classes (run this from the root of the repository): %w", err)
	}
	var published []*resourceapi.ResourceSlice
	for name, gpus := range fleet {
		some, err := nodes.Slices(name, gpus)
		if err != nil {
			return nil, err
		}
		published = append(published, some...)
	}
	return allocator.New(classes, published), nil
}

// timeShareAllocation allocates a share on the node that is being filled, those
// before it are full: on the GPUs in use the scheduler counts what is left.
func (b *bench) timeShareAllocation(ctx context.Context) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	if gpus, err = nodes.WithShares(gpus, true); err != nil {
		return figures.Reading{}, err
	}
	nodes := map[string][]gpu.GPU{}
	var names []string
	for room := 0; room <= sharesInCluster; room += len(gpus) * profile.DefaultMaxClients {
		names = append(names, fmt.Sprintf("node-%d", len(names)))
		nodes[names[len(names)-1]] = gpus
	}
	last := names[len(names)-1]
	var measures []func() (float64, error)
	for _, held := range []int{sharesInCluster, 0} {
		scheduler, err := schedulerOf(nodes)
		if err != nil {
			return figures.Reading{}, err
		}
		if err := hold(ctx, scheduler, names, held); err != nil {
			return figures.Reading{}, err
		}
		l := &layout{Scheduler: scheduler, request: func(ctx context.Context) (*allocator.Grant, error) { return askShare(ctx, scheduler, last) }}
		measures = append(measures, func() (float64, error) { return l.timeOne(ctx, false) })
	}
	times, err := inTurns(allocationTurns, measures...)
	if err != nil {
		return figures.Reading{}, err
	}
	return against(times[0], times[1]), nil
}

// hold gives away so many shares, one node after the other.
func hold(ctx context.Context, s *allocator.Scheduler, nodes []string, shares int) error {
	for node := 0; len(s.Held()) < shares; {
		if node == len(nodes) {
			return fmt.Errorf("%d shares fill the cluster, of %d", len(s.Held()), shares)
		}
		grant, err := askShare(ctx, s, nodes[node])
		if err != nil {
			return err
		}
		if grant == nil {
			node++
		}
	}
	return nil
}
