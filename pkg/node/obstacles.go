package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// obstaclesTimeout is how long finding obstacles waits for a GPU.
const obstaclesTimeout = 5 * time.Second

// lookForObstacles finds devices that cannot be allocated now although no claim is in their
// way: a process blocks a mode change, or the driver does not offer a partition.
func (m *monitor) lookForObstacles(ctx context.Context) {
	gpus := m.gpus.List()
	found, errs := make([][]gpu.Obstacle, len(gpus)), make([]error, len(gpus))
	var wg sync.WaitGroup
	for i := range gpus {
		wg.Go(func() { found[i], errs[i] = m.obstaclesOf(ctx, gpus[i].PCIAddress) })
	}
	wg.Wait()
	seen, all := map[string][]gpu.Obstacle{}, map[string][]gpu.Obstacle{}
	for i, g := range gpus {
		before, last := m.publisher.ObstaclesOn(g.PCIAddress), m.seenObstacles[g.PCIAddress]
		now, lasting := found[i], found[i]
		switch {
		case errs[i] != nil:
			// The previous answer stays.
			klog.FromContext(ctx).V(2).Info("Cannot read which devices of a GPU can be allocated", "gpu", g.Name(), "err", errs[i])
			now, lasting = last, before
		case m.seenObstacles != nil:
			lasting = lastingObstacles(last, now)
		}
		seen[g.PCIAddress] = now
		if len(lasting) > 0 {
			all[g.PCIAddress] = lasting
		}
		m.reportObstacles(ctx, g.Name(), before, lasting)
	}
	m.seenObstacles = seen
	m.publisher.SetObstacles(ctx, all)
	m.PublishFailures(ctx)
}

// lastingObstacles returns the obstacles that count. The process of a deleted pod uses the GPU
// a moment longer, so a process must be found twice in a row. The first check of a run counts
// at once, so that a restart does not remove a taint for a moment.
func lastingObstacles(before, now []gpu.Obstacle) []gpu.Obstacle {
	return slices.DeleteFunc(slices.Clone(now), func(o gpu.Obstacle) bool {
		return o.Kind == gpu.ObstacleBusy && !slices.ContainsFunc(before, func(b gpu.Obstacle) bool {
			return b.Placement == o.Placement && b.Kind == o.Kind
		})
	})
}

func (m *monitor) obstaclesOf(ctx context.Context, pciAddress string) ([]gpu.Obstacle, error) {
	ctx, cancel := context.WithTimeout(ctx, obstaclesTimeout)
	defer cancel()
	driver, err := m.drivers.Of(pciAddress)
	if err != nil {
		return nil, err
	}
	return driver.Obstacles(ctx, pciAddress, m.claims.isHeld(pciAddress))
}

// reportObstacles reports new obstacles on a GPU, and those that are over. Devices with the same
// reason share an event.
func (m *monitor) reportObstacles(ctx context.Context, gpuID string, before, now []gpu.Obstacle) {
	for _, o := range byReason(now) {
		if !slices.Equal(devicesOf(before, o), devicesOf(now, o)) {
			m.events.Warn(ctx, eventOf[o.Kind].began, fmt.Sprintf("GPU %s: cannot allocate %s now: %s", gpuID, shortNames(gpuID, devicesOf(now, o)), o.Reason))
		}
	}
	for _, o := range byReason(before) {
		if len(devicesOf(now, o)) == 0 {
			m.events.Note(ctx, eventOf[o.Kind].over, fmt.Sprintf("GPU %s: no longer true: %s", gpuID, o.Reason))
		}
	}
}

// eventOf has the reasons of the events that report an obstacle, and its end.
var eventOf = map[gpu.ObstacleKind]struct{ began, over string }{
	gpu.ObstacleBusy:    {names.EventGPUBusy, names.EventGPUNoLongerBusy},
	gpu.ObstacleMissing: {names.EventPartitionMissing, names.EventPartitionFound},
	gpu.ObstacleFailed:  {names.EventDevicesFail, names.EventDevicesWork},
}

// shortNames names devices without the name of their GPU.
func shortNames(gpuID string, devices []string) string {
	short := make([]string, len(devices))
	for i, device := range devices {
		short[i] = strings.TrimPrefix(device, gpuID+"-")
		if device == gpuID {
			short[i] = "the whole GPU"
		}
	}
	return strings.Join(short, ", ")
}

// byReason returns one obstacle for each kind and reason.
func byReason(all []gpu.Obstacle) []gpu.Obstacle {
	return lists.UnionFunc(nil, func(a, b gpu.Obstacle) bool { return a.Kind == b.Kind && a.Reason == b.Reason }, all...)
}

// devicesOf lists the devices that have an obstacle's kind and reason.
func devicesOf(all []gpu.Obstacle, of gpu.Obstacle) []string {
	var devices []string
	for _, o := range all {
		if o.Kind == of.Kind && o.Reason == of.Reason {
			devices = append(devices, o.Placement)
		}
	}
	return devices
}
