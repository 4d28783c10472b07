package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	// fleetProfile is what the nodes are labelled with.
	fleetProfile = "all-1g.10gb"
	// tenth is the share of nodes that may be switched at once.
	tenth = 10
	// fleetPatience is how long all nodes together may take, and cpuWindow what the use
	// of processors is averaged over.
	fleetPatience = 20 * time.Minute
	cpuWindow     = 10 * time.Second
)

// fleetRun is what the switch of all nodes has cost.
type fleetRun struct {
	// slices and states are how many nodes were tainted at once at most, by their
	// ResourceSlices and by their GPUNodes.
	slices, states int
	took           time.Duration
	used           []controlplane.Usage
	written        controlplane.Writes
}

func (s *scale) fleetFigures(ctx context.Context) []figures.Figure {
	run := sync.OnceValues(func() (*fleetRun, error) { return s.runFleet(ctx) })
	figure := func(name string, limit figures.Limit, pick func(*fleetRun) figures.Reading) figures.Figure {
		name = fmt.Sprintf("%d nodes at once, 10%% may be switched: %s", s.nodes, name)
		return figures.Figure{Name: name, Limit: limit, Measure: figures.From(run, pick)}
	}
	return []figures.Figure{
		figure("tainted at once", figures.AtMost(float64(max(s.nodes/tenth, 1)), "nodes"), func(r *fleetRun) figures.Reading {
			return figures.Reading{Value: float64(max(r.slices, r.states)), Seen: fmt.Sprintf("%d by ResourceSlices, %d by GPUNodes; all of %d done in %s", r.slices, r.states, s.nodes, r.took.Round(time.Second))}
		}),
		figure("memory of the controller", figures.AtMost(300, "MB"), func(r *fleetRun) figures.Reading {
			return figures.Reading{Value: float64(r.used[len(r.used)-1].Peak) / 1e6, Seen: "VmHWM: the most that was resident at once"}
		}),
		figure("processors of the controller", figures.AtMost(1, "cores"), func(r *fleetRun) figures.Reading {
			return figures.Reading{Value: controlplane.Busiest(r.used, cpuWindow), Seen: fmt.Sprintf("its busiest %s; %.2f on average", cpuWindow, controlplane.Busiest(r.used, r.used[len(r.used)-1].At.Sub(r.used[0].At)))}
		}),
		figure("API writes a switch", figures.AtMost(mostWrites, "writes"), func(r *fleetRun) figures.Reading {
			each := func(n int) float64 { return float64(n) / float64(s.nodes) }
			return figures.Reading{Value: each(r.written.Sum()), Seen: fmt.Sprintf("%.1f GPUNode, %.1f slices, %.1f events, %.1f nodes",
				each(r.written.Of("gpunodes", "gpunodes/status")), each(r.written.Of("resourceslices")), each(r.written.Of("events")), each(r.written.Of("nodes")))}
		}),
	}
}

// runFleet starts the cluster, and has all its nodes switched.
func (s *scale) runFleet(ctx context.Context) (*fleetRun, error) {
	c, err := s.up(ctx, "--api-only")
	if err != nil {
		return nil, err
	}
	defer s.launcher.Down(ctx)
	if err := s.launcher.InstallChart(ctx, "--set", fmt.Sprintf("controller.maxUnavailable=%d%%", 100/tenth)); err != nil {
		return nil, err
	}
	names := make([]string, s.nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%04d", i)
	}
	if err := controlplane.ForAll(ctx, names, c.CreateNode); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := c.newPlugins(names)
	defer func() { stop(); p.ended.Wait() }()
	if err := controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error { return p.begin(ctx, name) }); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	controller, err := c.startController(ctx)
	if err != nil {
		return nil, err
	}
	r, err := p.relabel(ctx, controller, names)
	return r, errors.Join(err, controller.Stop())
}

// relabel gives all nodes another profile, and waits until all follow it.
func (p *plugins) relabel(ctx context.Context, controller *controller, names []string) (*fleetRun, error) {
	began := time.Now()
	if err := p.await(ctx, ""); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "All nodes and the controller have met after %s\n", time.Since(began).Round(time.Second))
	slices, err := p.watchSlices(ctx)
	if err != nil {
		return nil, err
	}
	states, err := p.watchStates(ctx)
	if err != nil {
		return nil, err
	}
	before, err := p.ReadWrites(ctx)
	if err != nil {
		return nil, err
	}
	r := &fleetRun{}
	start := time.Now()
	if err := controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error { return p.label(ctx, name, fleetProfile) }); err != nil {
		return nil, err
	}
	if err := p.await(ctx, fleetProfile); err != nil {
		return nil, err
	}
	r.took, r.used = time.Since(start), controller.UsedSince(start)
	after, err := p.ReadWrites(ctx)
	if err != nil {
		return nil, err
	}
	r.written = after.Since(before, ofSwitches...)
	r.written[controlplane.Write{Resource: "nodes", Verb: "PATCH"}] -= len(names) // the labels
	return r, r.take(slices, states)
}

// take takes in what the watches have seen.
func (r *fleetRun) take(slices, states *tainted) error {
	_, most, lost := slices.seen()
	r.slices = most
	// The plugins take the taints off once the GPUNode says that the switch is over.
	if left, _, _ := states.seen(); lost == nil && left > 0 {
		lost = fmt.Errorf("%d nodes are in a switch still", left)
	}
	_, most, err := states.seen()
	r.states = most
	return errors.Join(lost, err)
}

func (c *cluster) label(ctx context.Context, node, profile string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, names.LabelProfile, profile)
	_, err := c.Core.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// begin publishes a node as its plugin does when it starts.
func (p *plugins) begin(ctx context.Context, name string) error {
	node := p.nodes[name]
	if err := p.publish(ctx, node); err != nil {
		return err
	}
	if _, err := p.tranche.GPUNodes().Create(ctx, &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return p.report(ctx, node)
}

// await waits until all nodes follow a profile and rest, by what the plugins' watch
// tells.
func (p *plugins) await(ctx context.Context, profile string) error {
	ctx, cancel := context.WithTimeout(ctx, fleetPatience)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for told := time.Now(); ; {
		done, states := following(p.informer.GetStore().List(), profile)
		if done == len(p.nodes) {
			return nil
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "%d of %d nodes follow profile %q: %v\n", done, len(p.nodes), profile, states)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes follow profile %q: %v: %w", done, len(p.nodes), profile, states, ctx.Err())
		}
	}
}

// following counts the GPUNodes that follow a profile and rest, and how many are in each
// state.
func following(all []any, profile string) (done int, states map[v1beta1.State]int) {
	states = map[v1beta1.State]int{}
	for _, o := range all {
		node, ok := o.(*v1beta1.GPUNode)
		if !ok {
			continue
		}
		s := &node.Status
		states[s.State]++
		if s.State == v1beta1.Idle && s.Applied != nil && s.Applied.ProfileName == profile {
			done++
		}
	}
	return done, states
}
