package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/replay"
	"github.com/tranche-dev/tranche/test/packing/report"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// replayAll replays each workload at each load by each policy, each in a cluster of its own.
func (s *settings) replayAll(ctx context.Context, workloads []workload.Workload, chosen []policy) (*report.Results, error) {
	layout, err := fleet.Published(ctx, fleet.Chart, false)
	if err != nil {
		return nil, err
	}
	results := &report.Results{
		Nodes: s.nodes, Claims: s.claims, Loads: s.loads, Real: true, Of: map[report.Case][]replay.Result{},
	}
	for _, p := range chosen {
		results.Policies = append(results.Policies, p.name)
	}
	for _, w := range workloads {
		results.Workloads = append(results.Workloads, w.Name)
		for _, load := range s.loads {
			for _, p := range chosen {
				fmt.Fprintf(os.Stderr, "%s at load %.2f by %s\n", w.Name, load, p.name)
				r, err := s.replay(ctx, p, layout, w, load)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
				results.Of[report.Case{Workload: w.Name, Policy: p.name, Load: load}] = []replay.Result{r}
			}
		}
	}
	return results, nil
}

// replay replays a workload by a policy in a new cluster.
func (s *settings) replay(ctx context.Context, p policy, l *fleet.Layout, w workload.Workload, load float64) (r replay.Result, err error) {
	c, stop, err := s.up(ctx, p, s.nodes)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	claims := fleet.Claims(w.Arrivals(float64(s.nodes*workload.GPUsPerNode), load, s.claims, 0))
	player := newPlayer(c, l, s.nodes, claims, w.Popularity())
	progress := picture.NewProgress(os.Stderr)
	defer progress.Done()
	begin := replay.Begin(claims)
	var from cost
	changes := 0
	for i := 0; i < len(claims); {
		if i == begin {
			if from, err = c.cost(ctx); err != nil {
				return r, err
			}
			changes = player.fleet.Changes
		}
		next := min(i+s.batch, len(claims))
		if i < begin {
			next = min(next, begin)
		}
		if err := player.play(ctx, claims[i:next]); err != nil {
			return r, err
		}
		i = next
		progress.Say("%d of %d claims, %d wait", i, len(claims), len(player.waiting))
	}
	to, err := c.cost(ctx)
	if err != nil {
		return r, err
	}
	player.recorder.Finish(claims)
	r = player.recorder.Result
	r.Changes = player.fleet.Changes - changes
	written, measured := to.writes.Since(from.writes), float64(len(claims)-begin)
	r.Scheduler = replay.Scheduler{
		CPU: (to.cpu - from.cpu).Seconds() / measured, Writes: float64(written.Sum()) / measured,
		SliceWrites: float64(written.Of("resourceslices")) / measured,
	}
	return r, nil
}

// position is a device of a fleet.
type position struct{ node, gpu, device int }

// player plays claims in a cluster. The fleet follows what the scheduler does.
type player struct {
	*cluster
	fleet      *fleet.Fleet
	devices    map[device]position
	popularity []float64
	recorder   *replay.Recorder
	ends       replay.Ends
	// names are the pods of the claims, waiting the claims that wait, by pod.
	names   map[*fleet.Claim]string
	waiting map[string]*fleet.Claim
}

func newPlayer(c *cluster, l *fleet.Layout, nodes int, claims []*fleet.Claim, popularity []float64) *player {
	p := &player{
		cluster: c, fleet: fleet.New(l, nodes), devices: map[device]position{}, popularity: popularity,
		recorder: replay.NewRecorder(claims), names: map[*fleet.Claim]string{}, waiting: map[string]*fleet.Claim{},
	}
	for i, claim := range claims {
		p.names[claim] = podName("pod", i)
	}
	// The GPUs of a node have the same placements in the same order, and so has the layout.
	for node := range nodes {
		for g := range c.hardware {
			for d := range l.GPU.Placements {
				at := device{names.PoolName(nodeName(node)), c.hardware[g].Placements[d].Name()}
				p.devices[at] = position{node, g, d}
			}
		}
	}
	return p
}

// play has claims arrive at once, when the last of them does. Those that end until then end first.
func (p *player) play(ctx context.Context, arriving []*fleet.Claim) error {
	now := max(0, arriving[len(arriving)-1].Arrival)
	p.recorder.Until(now, p.sample(), func() float64 { return p.fleet.Fragmentation(p.popularity) })
	var ended []string
	for c := p.ends.Next(now); c != nil; c = p.ends.Next(now) {
		p.fleet.Release(c)
		ended = append(ended, p.names[c])
	}
	if err := controlplane.ForAll(ctx, ended, func(ctx context.Context, name string) error {
		return deletePod(ctx, p.Cluster, name)
	}); err != nil {
		return err
	}
	names := make([]string, len(arriving))
	for i, c := range arriving {
		names[i] = p.names[c]
		p.waiting[names[i]] = c
	}
	if err := controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error {
		return createPod(ctx, p.Cluster, name, p.waiting[name].Shape, p.ask)
	}); err != nil {
		return err
	}
	left, err := p.AwaitTried(ctx, p.scheduler)
	if err != nil {
		return err
	}
	for name, c := range p.waiting {
		if left[name] {
			continue
		}
		if err := p.start(ctx, name, c, now, slices.Contains(arriving, c)); err != nil {
			return err
		}
	}
	return nil
}

// start follows the scheduler: a claim has its devices.
func (p *player) start(ctx context.Context, name string, c *fleet.Claim, now float64, atOnce bool) error {
	at, err := p.placeOf(ctx, name)
	if err != nil {
		return err
	}
	delete(p.waiting, name)
	p.fleet.Hold(c, at)
	if atOnce {
		now = max(0, c.Arrival)
	}
	p.ends.Start(c, now)
	return nil
}

// placeOf is where the scheduler has placed the claim of a pod.
func (p *player) placeOf(ctx context.Context, name string) (fleet.Place, error) {
	pod, err := p.Core.CoreV1().Pods(corev1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fleet.Place{}, err
	}
	claim, err := p.Core.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, claimOf(pod), metav1.GetOptions{})
	if err != nil {
		return fleet.Place{}, err
	}
	var at fleet.Place
	if claim.Status.Allocation == nil {
		return at, fmt.Errorf("pod %s has node %s, and its claim no devices", name, pod.Spec.NodeName)
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		found, known := p.devices[device{r.Pool, r.Device}]
		if !known || !p.fleet.Nodes[found.node].GPUs[found.gpu].Fits(found.device) {
			return at, fmt.Errorf("the scheduler gave device %s of pool %s to pod %s, which does not fit", r.Device, r.Pool, name)
		}
		at.Node, at.Device = found.node, found.device
		at.GPUs |= 1 << found.gpu
	}
	return at, nil
}

func (p *player) sample() replay.Sample {
	s := replay.SampleOf(p.fleet)
	for _, c := range p.waiting {
		s.Waiting[c.Kind] += c.GPUs()
	}
	return s
}
