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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// Decider decides plans and admits nodes. It is safe for concurrent use.
type Decider struct {
	// Client reads from caches and writes; Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events recorder.EventRecorder
	// MaxUnavailable and MaxFailures are those of nodes without a plan. The first is also the
	// default of plans.
	MaxUnavailable, MaxFailures intstr.IntOrString
	// Wake enqueues a node for which something changes that its GPUNode does not show.
	Wake func(node string)
	// Again enqueues a call of Decide.
	Again func()

	// deciding serializes decisions. It is held while a decision is written.
	deciding sync.Mutex
	// profiles, chosen, written, nodes, plans and listed belong to Decide.
	profiles map[string]*v1beta1.ProfileSnapshot
	chosen   map[string]chosen
	written  map[string]time.Time
	// nodes and plans are newer than the caches may be. listed: that is certain, because they
	// were read from the API server once.
	nodes  assumed[*v1beta1.GPUNode]
	plans  assumed[*v1beta1.PartitionPlan]
	listed bool

	// mu guards what follows.
	mu sync.Mutex
	// decided: there was a decision.
	decided bool
	// order are the plans by precedence.
	order []*plan
	// suspended are nodes whose status could not be written. They may not begin, and are not
	// admitted until this time.
	suspended map[string]time.Time
	// problems are what is wrong with the labels of nodes, which keep their profiles until that is
	// corrected.
	problems map[string]state.Pending
	// result is the last decision for nodes without a plan.
	result rollout.Result
	// assigned is what each node is to have, to wake those for which that changes.
	assigned map[string]string
}

// suspendedFor is how long a node is not admitted whose status could not be written.
const suspendedFor = 10 * time.Second

// ErrOutdated says that something has changed since it was read. It is read again soon.
var ErrOutdated = errors.New("outdated")

// Begin makes the first decision, by what is at the API server.
func (d *Decider) Begin(ctx context.Context) error {
	if d.Decided() {
		return nil // A later decision may be waiting for the API server.
	}
	d.deciding.Lock()
	defer d.deciding.Unlock()
	if d.Decided() {
		return nil
	}
	_, err := d.decideAll(ctx)
	if !d.Decided() {
		return err
	}
	// A plan whose status cannot be written holds up no other.
	d.Again()
	return nil
}

// Decided reports whether there was a decision.
func (d *Decider) Decided() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.decided
}

// Decide decides which nodes may begin, and writes that and the status of plans. It returns when
// to decide again if nothing happens. Zero means never.
func (d *Decider) Decide(ctx context.Context) (time.Time, error) {
	d.deciding.Lock()
	defer d.deciding.Unlock()
	return d.decideAll(ctx)
}

func (d *Decider) decideAll(ctx context.Context) (time.Time, error) {
	now := d.Clock.Now()
	if err := d.list(ctx); err != nil {
		return time.Time{}, err
	}
	order, err := d.listPlans(ctx)
	if err != nil {
		return time.Time{}, err
	}
	f, err := d.observe(ctx, order, now)
	if err != nil {
		return time.Time{}, err
	}
	unplanned := rollout.Unplanned{MaxUnavailable: d.MaxUnavailable, MaxFailures: d.MaxFailures, Nodes: f.others}
	r := unplanned.Decide()
	wake, failed := r.Wake, error(nil)
	for _, p := range order {
		decision, err := d.decide(ctx, p, f.of[p.Name], now)
		for _, n := range f.of[p.Name] {
			// Without the status of its plan, no node begins that might not before.
			if to := decision.Admitted[n.Name]; to != "" && !n.Overridden && (err == nil || to == n.Admitted) {
				r.Admitted[n.Name] = to
			}
		}
		failed = errors.Join(failed, err)
		wake = rollout.Earliest(wake, decision.Wake)
	}
	failed = errors.Join(failed, d.admit(ctx, f, r.Admitted))
	d.publish(f, order, r)
	return wake, failed
}

// list makes sure that nothing is decided by caches that are older than what an earlier leader, or
// a call whose answer was lost, has written.
func (d *Decider) list(ctx context.Context) error {
	if d.listed {
		return nil
	}
	var nodes v1beta1.GPUNodeList
	if err := d.Reader.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list the GPUNodes: %w", err)
	}
	var all v1beta1.PartitionPlanList
	if err := d.Reader.List(ctx, &all); err != nil {
		return fmt.Errorf("list the PartitionPlans: %w", err)
	}
	d.nodes, d.plans = assume(pointers(nodes.Items)), assume(pointers(all.Items))
	d.listed = true
	return nil
}

// decide decides for a plan, and writes its status.
func (d *Decider) decide(ctx context.Context, p *plan, nodes []*rollout.Node, now time.Time) (rollout.Decision, error) {
	var decision rollout.Decision
	for range 3 {
		profile, err := d.profile(ctx, p.PartitionPlan, d.Client)
		if err != nil {
			return rollout.Decision{Admitted: admissions(nodes)}, err
		}
		in := rollout.Plan{
			PartitionPlan: p.PartitionPlan, Profile: profile, Invalid: p.invalid, Nodes: nodes, Now: now, MaxUnavailable: d.MaxUnavailable,
		}
		decision = in.Decide()
		if !starts(&decision, p.PartitionPlan, nodes) {
			break
		}
		// Nothing begins because of an outdated cache.
		same, err := d.refresh(ctx, p, profile)
		if err != nil {
			return decision, err
		}
		if same {
			break
		}
	}
	err := d.write(ctx, p, &decision, now)
	return decision, err
}

// admissions returns the admissions of nodes.
func admissions(nodes []*rollout.Node) map[string]string {
	all := map[string]string{}
	for _, n := range nodes {
		all[n.Name] = n.Admitted
	}
	return all
}

// starts reports whether a decision begins anything.
func starts(decision *rollout.Decision, p *v1beta1.PartitionPlan, nodes []*rollout.Node) bool {
	if decision.Status.Revision != p.Status.Revision || !ptr.Equal(decision.Status.TargetRevision, p.Status.TargetRevision) {
		return true
	}
	for _, n := range nodes {
		if to := decision.Admitted[n.Name]; to != "" && to != n.Admitted {
			return true
		}
	}
	return false
}

// refresh reads a plan and its profile from the API server, and reports whether they are those
// that were known.
func (d *Decider) refresh(ctx context.Context, p *plan, known *v1beta1.ProfileSnapshot) (bool, error) {
	var live v1beta1.PartitionPlan
	if err := d.Reader.Get(ctx, client.ObjectKeyFromObject(p.PartitionPlan), &live); err != nil {
		return false, fmt.Errorf("read PartitionPlan %s: %w", p.Name, err)
	}
	profile, err := d.profile(ctx, &live, d.Reader)
	if err != nil {
		return false, err
	}
	same := live.ResourceVersion == p.ResourceVersion
	d.plans[p.Name] = &live
	*p = *newPlan(&live)
	if rollout.HashOf(profile) != rollout.HashOf(known) {
		return false, fmt.Errorf("%w: PartitionProfile %s in the cache is not the newest", ErrOutdated, p.Spec.ProfileName)
	}
	return same, nil
}

// publish makes a decision known, and wakes the nodes that it concerns.
func (d *Decider) publish(f *fleet, order []*plan, r rollout.Result) {
	d.mu.Lock()
	before := d.assigned
	d.result, d.order, d.assigned, d.decided = r, order, map[string]string{}, true
	maps.DeleteFunc(d.suspended, func(node string, _ time.Time) bool { return f.nodes[node] == nil })
	maps.DeleteFunc(d.problems, func(node string, _ state.Pending) bool { return f.nodes[node] == nil })
	var wake []string
	for name := range f.nodes {
		to := f.assigned[name]
		if len(r.Stopped[to]) > 0 {
			to += " stopped"
		}
		d.assigned[name] = to
		if before != nil && before[name] != to { // All nodes are reconciled when the controller starts.
			wake = append(wake, name)
		}
	}
	d.mu.Unlock()
	for _, node := range wake {
		d.Wake(node)
	}
}
