package plans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/fleet/rollout"
)

// Keeper keeps the plans. It is safe for concurrent use.
type Keeper struct {
	// Client reads from caches and writes; Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events recorder.EventRecorder
	// MaxUnavailable and MaxFailures are those of nodes without a plan. The first is also the
	// default of plans.
	MaxUnavailable, MaxFailures intstr.IntOrString
	// Wake has a node reconciled, soon or, if nothing begins there, later.
	Wake func(node string, soon bool)
	// Again has Decide called soon.
	Again func()

	// deciding is held by Decide.
	deciding sync.Mutex
	// profiles, chosen and written belong to Decide.
	profiles map[string]*v1alpha1.ProfileSnapshot
	chosen   map[string]chosen
	written  map[string]time.Time

	// mu guards what follows.
	mu sync.Mutex
	// begun: there was a decision.
	begun bool
	// nodes and plans are newer than the caches may be.
	nodes map[string]*v1alpha1.GPUNode
	plans map[string]*v1alpha1.PartitionPlan
	// order are the plans by precedence.
	order []*plan
	// wants are the profiles that nodes without a plan do not have yet, refused nodes whose
	// status could not be written.
	wants   map[string]string
	refused map[string]time.Time
	// keeps are nodes that keep what they have whatever the limits are: there is no profile for
	// them, or nothing may be changed.
	keeps map[string]bool
	// beginning are nodes that begin, until their next version is known.
	beginning map[string]bool
	// result is the last decision.
	result rollout.Result
	// assigned is what each node is to have, to wake those for which that changes.
	assigned map[string]string
}

// refusedFor is how long a node is left out whose status could not be written.
const refusedFor = 10 * time.Second

// Fill makes the keeper know objects that were just read from the API server.
func (k *Keeper) Fill(nodes []v1alpha1.GPUNode, plans []v1alpha1.PartitionPlan) {
	for i := range nodes {
		k.Seen(&nodes[i])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plans = map[string]*v1alpha1.PartitionPlan{}
	for i := range plans {
		k.plans[plans[i].Name] = &plans[i]
	}
}

// Decide decides which nodes may begin, and writes the status of plans. It returns when to
// decide again if nothing happens; zero: never.
func (k *Keeper) Decide(ctx context.Context) (time.Time, error) {
	k.deciding.Lock()
	defer k.deciding.Unlock()
	now := k.Clock.Now()
	order, err := k.listPlans(ctx)
	if err != nil {
		return time.Time{}, err
	}
	f, err := k.observe(ctx, order, now)
	if err != nil {
		return time.Time{}, err
	}
	granted := k.granted()
	next := rollout.Result{Granted: map[string]string{}}
	var wake time.Time
	var failed error
	for _, p := range order {
		d, err := k.decide(ctx, p, f, granted, now)
		if err != nil {
			// What was granted before remains granted, unless the plan does not grant it any more.
			if failed == nil || errors.Is(failed, ErrOutdated) {
				failed = err
			}
			maps.DeleteFunc(d.Granted, func(node, target string) bool { return granted[node] != target })
		}
		maps.Copy(next.Granted, d.Granted)
		wake = rollout.Earliest(wake, d.Wake)
	}
	together := rollout.Together{MaxUnavailable: k.MaxUnavailable, MaxFailures: k.MaxFailures, Nodes: f.others, Granted: granted}
	r := together.Decide()
	maps.Copy(r.Granted, next.Granted)
	k.publish(f, order, r)
	return rollout.Earliest(wake, r.Wake), failed
}

func (k *Keeper) granted() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.result.Granted)
}

// decide decides for a plan, and writes its status.
func (k *Keeper) decide(ctx context.Context, p *plan, f *fleet, granted map[string]string, now time.Time) (rollout.Decision, error) {
	var d rollout.Decision
	for range 3 {
		profile, err := k.profile(ctx, p.Spec.Profile, k.Client)
		if err != nil {
			return d, err
		}
		in := rollout.Plan{
			PartitionPlan: p.PartitionPlan, Profile: profile, Invalid: p.invalid, Nodes: f.of[p.Name], Granted: granted, Now: now,
			MaxUnavailable: k.MaxUnavailable,
		}
		d = in.Decide()
		if !starts(&d, p.PartitionPlan, granted) {
			break
		}
		// Nothing begins because of an outdated cache.
		same, err := k.refresh(ctx, p, profile)
		if err != nil {
			return d, err
		}
		if same {
			break
		}
	}
	err := k.write(ctx, p, &d, now)
	return d, err
}

// starts tells whether a decision begins anything.
func starts(d *rollout.Decision, p *v1alpha1.PartitionPlan, granted map[string]string) bool {
	if d.Status.Revision != p.Status.Revision || d.Status.Target != p.Status.Target {
		return true
	}
	for node, target := range d.Granted {
		if granted[node] != target {
			return true
		}
	}
	return false
}

// refresh reads a plan and its profile from the API server, and tells whether they are those
// that were known.
func (k *Keeper) refresh(ctx context.Context, p *plan, known *v1alpha1.ProfileSnapshot) (bool, error) {
	var live v1alpha1.PartitionPlan
	if err := k.Reader.Get(ctx, client.ObjectKeyFromObject(p.PartitionPlan), &live); err != nil {
		return false, fmt.Errorf("read PartitionPlan %s: %w", p.Name, err)
	}
	profile, err := k.profile(ctx, live.Spec.Profile, k.Reader)
	if err != nil {
		return false, err
	}
	same := live.ResourceVersion == p.ResourceVersion && rollout.HashOf(profile) == rollout.HashOf(known)
	k.mu.Lock()
	k.plans[p.Name] = &live
	k.mu.Unlock()
	*p = *newPlan(&live)
	if rollout.HashOf(profile) != rollout.HashOf(known) {
		return false, fmt.Errorf("%w: PartitionProfile %s in the cache is not the newest", ErrOutdated, p.Spec.Profile)
	}
	return same, nil
}

// ErrOutdated says that something has changed since it was read. It is read again soon.
var ErrOutdated = errors.New("outdated")

// Decided tells whether there was a decision.
func (k *Keeper) Decided() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begun
}

// overtaken tells whether a node has begun, since it was observed, what a decision does not grant
// any more. The decision does not count it.
func (k *Keeper) overtaken(f *fleet, r *rollout.Result) bool {
	for node := range k.beginning {
		if !f.beginning[node] && r.Granted[node] != k.result.Granted[node] {
			return true
		}
	}
	return false
}

// publish makes a decision known, and wakes the nodes that it concerns.
func (k *Keeper) publish(f *fleet, order []*plan, r rollout.Result) {
	k.mu.Lock()
	before := k.result
	if k.overtaken(f, &r) {
		maps.DeleteFunc(r.Granted, func(node, target string) bool { return before.Granted[node] != target })
		k.Again()
	}
	k.result, k.order, k.begun = r, order, true
	assigned := map[string]string{}
	var soon, later []string
	for _, n := range f.nodes {
		to := f.assigned[n.Name]
		if len(r.Stopped[to]) > 0 {
			to += " stopped"
		}
		assigned[n.Name] = to
		switch {
		case r.Granted[n.Name] != "" && r.Granted[n.Name] != before.Granted[n.Name]:
			soon = append(soon, n.Name)
		case k.assigned[n.Name] != to:
			later = append(later, n.Name)
		}
	}
	first := k.assigned == nil
	k.assigned = assigned
	k.mu.Unlock()
	for _, node := range soon {
		k.Wake(node, true)
	}
	if first {
		return // All nodes are reconciled when the controller starts.
	}
	for _, node := range later {
		k.Wake(node, false)
	}
}
