package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	// renderedChart has the chart's device classes.
	renderedChart = "deployments/helm/testdata/defaults.yaml"
	// scheduledInventory is what each node has on which pods are scheduled.
	scheduledInventory = "h100x8"
	// batchOfPods is how many pods are scheduled in a round. Much shorter batches would
	// take few clock ticks of CPU time.
	batchOfPods = 20
)

// workloads are the kinds of pods that are scheduled, in this order: each pod has a claim
// for one device of the class. A layout may cost at most limit times what NVIDIA's costs.
var workloads = []struct {
	name, class string
	limit       float64
}{
	{"1g.10gb", "gpu-mig-1g-10gb.tranche.dev", 0.85},
	{"a whole GPU", "gpu.tranche.dev", 1},
}

// layout is a way to publish the GPUs of a node.
type layout struct {
	name    string
	driver  string
	publish func(node string, gpus []gpu.GPU) ([]*resourceapi.ResourceSlice, error)
}

// layouts are ours and the one that it is compared with.
var layouts = []layout{
	{"ours", names.DriverName, func(node string, gpus []gpu.GPU) ([]*resourceapi.ResourceSlice, error) {
		shared, err := nodes.WithShares(gpus, true)
		if err != nil {
			return nil, err
		}
		return nodes.Slices(node, shared)
	}},
	{"NVIDIA's", nodes.NVIDIADriver, func(node string, gpus []gpu.GPU) ([]*resourceapi.ResourceSlice, error) {
		return nodes.NVIDIASlices(node, gpus), nil
	}},
}

// perPod is the CPU time of the scheduler per pod, in seconds: by workload, then by
// layout, one number for each round.
type perPod [][][]float64

func (s *scale) schedulerFigures(ctx context.Context) []figures.Figure {
	run := sync.OnceValues(func() (perPod, error) { return s.runScheduler(ctx) })
	var all []figures.Figure
	for i, w := range workloads {
		all = append(all, figures.Figure{
			Name:  fmt.Sprintf("%d nodes with 8 H100: scheduler CPU per pod with %s, against NVIDIA's layout", s.schedulerNodes, w.name),
			Limit: figures.AtMost(w.limit, "×"),
			Measure: figures.From(run, func(cost perPod) figures.Reading {
				return compared(cost[i][0], cost[i][1])
			}),
		})
	}
	return all
}

// compared is the median over the rounds of what our layout costs as a share of the
// other. Both are measured one right after the other in each round, because what else
// runs on the machine changes the CPU time of the same work.
func compared(ours, other []float64) figures.Reading {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / other[i]
	}
	return figures.Reading{
		Value: figures.Median(ratios),
		Seen: fmt.Sprintf("%.1f against %.1f ms; %d rounds, %.2f to %.2f", figures.Median(ours)*1000, figures.Median(other)*1000,
			len(ratios), slices.Min(ratios), slices.Max(ratios)),
	}
}

// scheduled is a cluster whose nodes have published a layout, and its scheduler.
type scheduled struct {
	*cluster
	*layout
	scheduler *controlplane.Scheduler
	// batches is how many batches of pods were made.
	batches int
}

// runScheduler measures all workloads with all layouts in turns, each in a cluster of its
// own.
func (s *scale) runScheduler(ctx context.Context) (cost perPod, err error) {
	inv, err := models.LoadInventory(scheduledInventory)
	if err != nil {
		return nil, err
	}
	gpus, err := nodes.NVIDIAGPUs(ctx, inv, "node", "")
	if err != nil {
		return nil, err
	}
	var all []*scheduled
	for i := range layouts {
		on := *s
		on.launcher.Dir = fmt.Sprintf("%s-%d", s.launcher.Dir, i)
		defer on.launcher.Down(ctx)
		c, err := on.startScheduled(ctx, &layouts[i], gpus)
		if err != nil {
			return nil, fmt.Errorf("%s layout: %w", layouts[i].name, err)
		}
		defer func() { err = errors.Join(err, c.scheduler.Stop()) }()
		all = append(all, c)
	}
	for _, w := range workloads {
		of := make([][]float64, len(all))
		for round := range s.schedulerRounds + 1 {
			for i, c := range all {
				seconds, err := c.measure(ctx, w.class)
				if err != nil {
					return nil, fmt.Errorf("%s layout: %w", c.name, err)
				}
				if round > 0 { // before that the scheduler compiles selectors and fills caches
					of[i] = append(of[i], seconds)
				}
			}
		}
		cost = append(cost, of)
	}
	return cost, nil
}

// startScheduled starts a cluster with nodes that have published a layout, and a
// scheduler.
func (s *scale) startScheduled(ctx context.Context, l *layout, gpus []gpu.GPU) (*scheduled, error) {
	c, err := s.up(ctx, "--api-only")
	if err != nil {
		return nil, err
	}
	if err := c.publishLayout(ctx, l, gpus); err != nil {
		return nil, err
	}
	scheduler, err := c.StartScheduler(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &scheduled{cluster: c, layout: l, scheduler: scheduler}, nil
}

// measure has a batch of pods scheduled, and returns the CPU time of the scheduler per
// pod, in seconds. The pods stay.
func (c *scheduled) measure(ctx context.Context, class string) (float64, error) {
	c.batches++
	before, err := c.scheduler.Usage()
	if err != nil {
		return 0, err
	}
	if err := c.schedulePods(ctx, c.scheduler, fmt.Sprintf("batch-%d", c.batches), class, batchOfPods, nil); err != nil {
		return 0, err
	}
	after, err := c.scheduler.Usage()
	return (after.CPU - before.CPU).Seconds() / batchOfPods, err
}

// publishLayout makes the device classes, the nodes and their slices.
func (c *cluster) publishLayout(ctx context.Context, l *layout, gpus []gpu.GPU) error {
	classes, err := allocator.Classes(renderedChart)
	if err != nil {
		return fmt.Errorf("read the chart's device classes (run this from the root of the repository): %w", err)
	}
	for _, class := range nodes.ForDriver(classes, l.driver) {
		if err := c.createClass(ctx, class); err != nil {
			return err
		}
	}
	if err := c.CreateServiceAccount(ctx); err != nil {
		return err
	}
	names := make([]string, c.schedulerNodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%03d", i)
	}
	return controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error {
		if err := c.CreateReadyNode(ctx, name); err != nil {
			return err
		}
		published, err := l.publish(name, gpus)
		if err != nil {
			return err
		}
		return c.CreateSlices(ctx, published)
	})
}
