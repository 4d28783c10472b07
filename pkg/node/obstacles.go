package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// obstaclesTimeout is how long the look for obstacles waits for a GPU.
const obstaclesTimeout = 5 * time.Second

// lookForObstacles looks what cannot be had of the GPUs now although no claim is
// in its way: modes that a process keeps them from, and parts that their driver
// does not offer.
func (p *plugin) lookForObstacles(ctx context.Context) {
	gpus := p.gpus.List()
	found, errs := make([][]gpu.Obstacle, len(gpus)), make([]error, len(gpus))
	var wg sync.WaitGroup
	for i := range gpus {
		wg.Go(func() { found[i], errs[i] = p.obstaclesOf(ctx, gpus[i].PCIAddress) })
	}
	wg.Wait()
	seen, all := map[string][]gpu.Obstacle{}, map[string][]gpu.Obstacle{}
	for i, g := range gpus {
		before, last := p.publisher.ObstaclesOn(g.PCIAddress), p.seenObstacles[g.PCIAddress]
		now, lasting := found[i], found[i]
		switch {
		case errs[i] != nil:
			// Not known now: what was known before stays.
			klog.FromContext(ctx).V(2).Info("It cannot be told what is in the way on a GPU", "gpu", g.Name(), "err", errs[i])
			now, lasting = last, before
		case p.seenObstacles != nil:
			lasting = lastingObstacles(last, now)
		}
		seen[g.PCIAddress] = now
		if len(lasting) > 0 {
			all[g.PCIAddress] = lasting
		}
		p.tellObstacles(ctx, g.Name(), before, lasting)
	}
	p.seenObstacles = seen
	p.publisher.SetObstacles(ctx, all)
}

// lastingObstacles are those that count. A process that ends, like that of a pod
// which is deleted, keeps the GPU a moment longer: it is in the way when it is
// seen twice. The first look of a run believes what it sees, so that a restart
// does not take a taint away for a moment.
func lastingObstacles(before, now []gpu.Obstacle) []gpu.Obstacle {
	return slices.DeleteFunc(slices.Clone(now), func(o gpu.Obstacle) bool {
		return o.Kind == gpu.ObstacleBusy && !slices.ContainsFunc(before, func(b gpu.Obstacle) bool {
			return b.Placement == o.Placement && b.Kind == o.Kind
		})
	})
}

func (p *plugin) obstaclesOf(ctx context.Context, pciAddress string) ([]gpu.Obstacle, error) {
	ctx, cancel := context.WithTimeout(ctx, obstaclesTimeout)
	defer cancel()
	return p.hardware.Obstacles(ctx, pciAddress, p.isHeld(pciAddress))
}

// tellObstacles tells the node's admin what is newly in the way on a GPU, and
// what is not any more. Devices with the same reason are told of together.
func (p *plugin) tellObstacles(ctx context.Context, gpuID string, before, now []gpu.Obstacle) {
	for _, o := range byReason(now) {
		if !slices.Equal(devicesOf(before, o), devicesOf(now, o)) {
			p.events.Warn(ctx, eventOf[o.Kind].began, fmt.Sprintf("GPU %s cannot give %s now: %s", gpuID, shortNames(gpuID, devicesOf(now, o)), o.Reason))
		}
	}
	for _, o := range byReason(before) {
		if len(devicesOf(now, o)) == 0 {
			p.events.Note(ctx, eventOf[o.Kind].over, fmt.Sprintf("No longer in the way on GPU %s: %s", gpuID, o.Reason))
		}
	}
}

// eventOf is the reasons of the events that tell of an obstacle, and of its end.
var eventOf = map[gpu.ObstacleKind]struct{ began, over string }{
	gpu.ObstacleBusy:    {v1alpha1.EventGPUBusy, v1alpha1.EventGPUBusyOver},
	gpu.ObstacleMissing: {v1alpha1.EventPartitionMissing, v1alpha1.EventPartitionMissingOver},
}

// shortNames names devices without the GPU that they are of.
func shortNames(gpuID string, devices []string) string {
	short := make([]string, len(devices))
	for i, device := range devices {
		short[i] = strings.TrimPrefix(device, gpuID+"-")
		if device == gpuID {
			short[i] = "itself as a whole"
		}
	}
	return strings.Join(short, ", ")
}

// byReason lists one obstacle for each kind and reason.
func byReason(all []gpu.Obstacle) []gpu.Obstacle {
	var first []gpu.Obstacle
	for _, o := range all {
		if !slices.ContainsFunc(first, func(f gpu.Obstacle) bool { return f.Kind == o.Kind && f.Reason == o.Reason }) {
			first = append(first, o)
		}
	}
	return first
}

// devicesOf lists the devices for which an obstacle's reason is in the way.
func devicesOf(all []gpu.Obstacle, of gpu.Obstacle) []string {
	var devices []string
	for _, o := range all {
		if o.Kind == of.Kind && o.Reason == of.Reason {
			devices = append(devices, o.Placement)
		}
	}
	return devices
}
