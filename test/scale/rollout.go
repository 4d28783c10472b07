package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	// poolLabel and orderLabel are node labels: by the first a plan selects its nodes, by
	// the second it orders them.
	poolLabel  = "scale.tranche.dev/pool"
	orderLabel = "scale.tranche.dev/order"
	// zones is how many there are.
	zones = 8
	// pauseSeen is how long a paused plan is watched.
	pauseSeen = 6 * time.Second
	// holderOrder is the place in its plan of the node on which a pod holds a partition.
	holderOrder = 2
)

// rolloutRun is what the rollout to all nodes has cost.
type rolloutRun struct {
	nodes int
	// first is the longest time from the creation of a plan to the start of its first node,
	// paused from a pause to the last start of a node of that plan, and restarted from the
	// start of another controller to the first node that it moves to another state.
	first, paused, restarted time.Duration
	// evictions is how many evictions there were, of so many pods.
	evictions, pods int
	took            time.Duration
	used            []controlplane.Usage
	written         controlplane.Writes
}

// rolloutFigures are those of the fleet and, to see how they grow, those of a tenth of it.
func (s *scale) rolloutFigures(ctx context.Context) (all []figures.Figure) {
	for _, nodes := range []int{s.planNodes / 10, s.planNodes} {
		run := sync.OnceValues(func() (*rolloutRun, error) { return s.runRollout(ctx, nodes) })
		figure := func(name string, limit figures.Limit, pick func(*rolloutRun) figures.Reading) {
			name = fmt.Sprintf("%d plans for %d nodes: %s", s.plans, nodes, name)
			all = append(all, figures.Figure{Name: name, Limit: limit, Measure: figures.From(run, pick)})
		}
		seconds := func(d time.Duration, seen string) figures.Reading {
			return figures.Reading{Value: d.Seconds(), Seen: seen}
		}
		figure("first node after a plan is created", figures.AtMost(5, "s"), func(r *rolloutRun) figures.Reading {
			return seconds(r.first, "the last of all plans, created at once")
		})
		figure("last node after a pause", figures.AtMost(2, "s"), func(r *rolloutRun) figures.Reading {
			return seconds(r.paused, "while other plans went on")
		})
		figure("rollout goes on after a restart of the controller", figures.AtMost(10, "s"), func(r *rolloutRun) figures.Reading {
			return seconds(r.restarted, "from the start of its process to the next state of a node")
		})
		figure("evictions a pod", figures.AtMost(1, "evictions"), func(r *rolloutRun) figures.Reading {
			return figures.Reading{Value: float64(r.evictions) / float64(r.pods), Seen: fmt.Sprintf("%d pods, of which some were leaving at the restart", r.pods)}
		})
		figure("memory of the controller", figures.AtMost(500, "MB"), func(r *rolloutRun) figures.Reading {
			peak := slices.MaxFunc(r.used, func(a, b controlplane.Usage) int { return int(a.Peak - b.Peak) }).Peak
			return figures.Reading{Value: float64(peak) / 1e6, Seen: "VmHWM: the most that was resident at once"}
		})
		figure("processors of the controller", figures.AtMost(1, "cores"), func(r *rolloutRun) figures.Reading {
			return figures.Reading{Value: controlplane.Busiest(r.used, cpuWindow), Seen: fmt.Sprintf("its busiest %s; all of %d done in %s", cpuWindow, r.nodes, r.took.Round(time.Second))}
		})
		figure("API writes a switch", figures.AtMost(mostWrites, "writes"), func(r *rolloutRun) figures.Reading {
			each := func(n int) float64 { return float64(n) / float64(r.nodes) }
			return figures.Reading{Value: each(r.written.Sum()), Seen: fmt.Sprintf("%.1f GPUNode, %.1f slices, %.1f events, %.1f nodes, %.2f plans",
				each(r.written.Of("gpunodes", "gpunodes/status")), each(r.written.Of("resourceslices")), each(r.written.Of("events")),
				each(r.written.Of("nodes")), each(r.written.Of("partitionplans", "partitionplans/status")))}
		})
	}
	return all
}

// runRollout starts the cluster, and has plans switch all its nodes.
func (s *scale) runRollout(ctx context.Context, nodes int) (*rolloutRun, error) {
	c, err := s.up(ctx, "--api-only")
	if err != nil {
		return nil, err
	}
	defer s.launcher.Down(ctx)
	if err := s.launcher.InstallChart(ctx); err != nil {
		return nil, err
	}
	if err := c.CreateServiceAccount(ctx); err != nil {
		return nil, err
	}
	names := make([]string, nodes)
	index := map[string]int{}
	for i := range names {
		names[i] = fmt.Sprintf("node-%04d", i)
		index[names[i]] = i
	}
	if err := controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error { return c.createPlanNode(ctx, name, index[name]) }); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := c.newPlugins(names)
	defer func() { stop(); p.ended.Wait() }()
	if err := controlplane.ForAll(ctx, names, p.begin); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	h, err := c.createHolders(ctx, names[s.plans*holderOrder:min(s.plans*(holderOrder+1), len(names))])
	if err != nil {
		return nil, err
	}
	p.ended.Go(func() { h.end(ctx) })
	r := &rollout{plugins: p, run: &rolloutRun{nodes: nodes, pods: len(h.pods)}, holders: h}
	if r.controller, err = c.startController(ctx); err != nil {
		return nil, err
	}
	err = r.measure(ctx)
	return r.run, errors.Join(err, r.controller.Stop())
}

// createPlanNode makes a node of the pool and the zone of its number.
func (c *cluster) createPlanNode(ctx context.Context, name string, i int) error {
	if err := c.CreateReadyNode(ctx, name); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q,%q:%q,%q:%q}}}`,
		poolLabel, poolOf(i, c.plans), orderLabel, fmt.Sprint(i/c.plans), corev1.LabelTopologyZone, fmt.Sprintf("zone-%d", i%zones))
	_, err := c.Core.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func poolOf(i, plans int) string { return fmt.Sprintf("pool-%02d", i%plans) }

// planOf is the plan for the nodes of a pool.
func planOf(pool string) *v1beta1.PartitionPlan {
	number, percent := intstr.FromInt32, intstr.FromString
	return &v1beta1.PartitionPlan{
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec: v1beta1.PartitionPlanSpec{
			ProfileName: fleetProfile, NodeSelector: &v1beta1.NodeSelector{MatchLabels: map[string]string{poolLabel: pool}},
			Strategy: v1beta1.RolloutStrategy{
				Steps:          []v1beta1.RolloutStep{{Nodes: number(2)}, {Nodes: percent("10%")}},
				MaxUnavailable: ptr.To(percent("10%")), MaxFailures: number(0),
				TopologyLimits: []v1beta1.TopologyLimit{{TopologyKey: corev1.LabelTopologyZone, MaxUnavailable: percent("50%")}},
				Order:          v1beta1.NodeOrder{By: v1beta1.OrderByLabel, LabelKey: orderLabel},
			},
		},
	}
}

// rollout is the rollout at work.
type rollout struct {
	*plugins
	run        *rolloutRun
	controller *controller
	holders    *holders
	starts     *starts
}

// measure creates the plans, restarts the controller, pauses a plan, and waits until all is
// done.
func (r *rollout) measure(ctx context.Context) error {
	if err := r.await(ctx, ""); err != nil {
		return err
	}
	var err error
	if r.starts, err = r.watchStarts(); err != nil {
		return err
	}
	before, err := r.ReadWrites(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, part := range []func(context.Context) error{r.create, r.restart, r.pause} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if err := r.await(ctx, fleetProfile); err != nil {
		return err
	}
	r.run.took = time.Since(began)
	r.run.used = append(r.run.used, r.controller.UsedSince(began)...)
	after, err := r.ReadWrites(ctx)
	if err != nil {
		return err
	}
	r.run.evictions = after[controlplane.Evicted] - before[controlplane.Evicted]
	r.run.written = after.Since(before, ofSwitches...)
	r.run.written[controlplane.Write{Resource: "partitionplans", Verb: "POST"}] -= r.plans
	r.run.written[controlplane.Write{Resource: "partitionplans", Verb: "PATCH"}] -= 2 // pause and resume
	return nil
}

// create creates the plans at once, and waits for the first node of each.
func (r *rollout) create(ctx context.Context) error {
	var pools []string
	var mu sync.Mutex
	created := map[string]time.Time{}
	for i := range r.plans {
		pools = append(pools, poolOf(i, r.plans))
	}
	if err := controlplane.ForAll(ctx, pools, func(ctx context.Context, pool string) error {
		_, err := r.tranche.PartitionPlans().Create(ctx, planOf(pool), metav1.CreateOptions{})
		mu.Lock()
		defer mu.Unlock()
		created[pool] = time.Now()
		return err
	}); err != nil {
		return err
	}
	for _, pool := range pools {
		at, err := r.starts.await(ctx, func(s start) bool { return s.pool == pool && !s.goesOn })
		if err != nil {
			return fmt.Errorf("no node of plan %s starts: %w", pool, err)
		}
		r.run.first = max(r.run.first, at.Sub(created[pool]))
	}
	return nil
}

// restart ends the controller while pods are leaving, and starts another one.
func (r *rollout) restart(ctx context.Context) error {
	if err := r.holders.awaitLeaving(ctx); err != nil {
		return err
	}
	r.run.used = append(r.run.used, r.controller.UsedSince(time.Time{})...)
	if err := r.controller.Stop(); err != nil {
		return err
	}
	// What it wrote last must have been seen.
	if err := sleep.For(ctx, time.Second); err != nil {
		return err
	}
	began := time.Now()
	var err error
	if r.controller, err = r.startController(ctx); err != nil {
		return err
	}
	at, err := r.starts.await(ctx, func(s start) bool { return s.at.After(began) })
	if err != nil {
		return fmt.Errorf("nothing happens after the restart of the controller: %w", err)
	}
	r.run.restarted = at.Sub(began)
	return nil
}

// pause pauses the plan with the most nodes to go for a while.
func (r *rollout) pause(ctx context.Context) error {
	plans, err := r.tranche.PartitionPlans().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	chosen := slices.MaxFunc(plans.Items, func(a, b v1beta1.PartitionPlan) int {
		return int(a.Status.NodeCounts.Waiting - b.Status.NodeCounts.Waiting)
	})
	if chosen.Status.NodeCounts.Waiting == 0 {
		return errors.New("no plan has waiting nodes, so a pause shows nothing: use more nodes")
	}
	patch := func(paused bool) error {
		_, err := r.tranche.PartitionPlans().Patch(ctx, chosen.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused), metav1.PatchOptions{})
		return err
	}
	if err := patch(true); err != nil {
		return err
	}
	at := time.Now()
	if err := sleep.For(ctx, pauseSeen); err != nil {
		return err
	}
	others := 0
	for _, s := range r.starts.since(at) {
		if s.goesOn {
			continue
		}
		if s.pool == chosen.Name {
			r.run.paused = max(r.run.paused, s.at.Sub(at))
		} else {
			others++
		}
	}
	fmt.Fprintf(os.Stderr, "While %s was paused, %d nodes of other plans started\n", chosen.Name, others)
	return patch(false)
}
