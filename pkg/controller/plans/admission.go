package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
)

// admit writes into the GPUNodes to which profiles they are admitted. Admissions that are over are
// withdrawn first: unless that is certain, nobody else is admitted. Each write requires that the
// GPUNode is the one that was observed, so a node that has begun meanwhile keeps its place.
func (d *Decider) admit(ctx context.Context, f *fleet, admitted map[string]string) error {
	var withdraw, admit []*v1beta1.GPUNode
	to := map[string]string{}
	for _, g := range f.gpuNodes {
		to[g.Name] = admitted[g.Name]
		if n := f.nodes[g.Name]; n != nil {
			to[g.Name] = cmp.Or(to[g.Name], n.Keeps())
		}
		switch {
		case to[g.Name] == g.Status.AdmittedHash:
			d.resume(g.Name)
		case to[g.Name] != "":
			admit = append(admit, g)
		case !d.isSuspended(g.Name): // The write would be refused again, and the node may not begin.
			withdraw = append(withdraw, g)
		}
	}
	var refused error
	for _, g := range slices.Concat(withdraw, admit) {
		next := g.DeepCopy()
		next.Status.AdmittedHash = to[g.Name]
		err := d.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(g, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			d.nodes[g.Name] = next
			d.resume(g.Name)
			continue
		}
		err = fmt.Errorf("write into GPUNode %s to which profile it is admitted: %w", g.Name, err)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			d.listed = d.nodes.reread(ctx, d.Reader, g)
			return errors.Join(refused, fmt.Errorf("%w: %w", ErrOutdated, err))
		}
		d.Suspend(g.Name)
		refused = errors.Join(refused, err)
		if !Refused(err) {
			d.listed = false // It may have been written.
			return refused
		}
	}
	return refused
}

// Refused reports whether a write certainly failed, and would fail again.
func Refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// Suspend leaves a node out for a while because its status cannot be written. Other nodes do not
// wait for it, and it may not begin, whatever its status says.
func (d *Decider) Suspend(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suspended == nil {
		d.suspended = map[string]time.Time{}
	}
	d.suspended[node] = d.Clock.Now().Add(suspendedFor)
	d.Again()
}

// isSuspended reports whether the suspension of a node lasts.
func (d *Decider) isSuspended(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Clock.Now().Before(d.suspended[node])
}

// resume ends the suspension of a node when its time is over: its status says what was decided.
func (d *Decider) resume(node string) {
	d.mu.Lock()
	until, ok := d.suspended[node]
	over := ok && !d.Clock.Now().Before(until)
	if over {
		delete(d.suspended, node)
	}
	d.mu.Unlock()
	if over {
		d.Wake(node)
	}
}

// SetProblem records what is wrong with the labels of a node. The node then keeps its profile, so its
// plan sets it aside. An empty reason means that nothing is wrong.
func (d *Decider) SetProblem(node, reason, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := state.Pending{Reason: reason, Message: message}
	switch {
	case d.problems[node] == next:
		return
	case reason == "":
		delete(d.problems, node)
	case d.problems == nil:
		d.problems = map[string]state.Pending{node: next}
	default:
		d.problems[node] = next
	}
	d.Again()
}

// mayBegin reports whether a node may begin to switch to a profile: it has it, disturbs nobody, or
// was admitted.
func (d *Decider) mayBegin(g *v1beta1.GPUNode, hash string) bool {
	s := &g.Status
	d.mu.Lock()
	_, suspended := d.suspended[g.Name]
	d.mu.Unlock()
	return rollout.HashOf(s.Applied) == hash || rollout.Joins(s) || s.AdmittedHash == hash && !suspended
}

// Of returns what the plan that selects a node gives it, or nil if no plan selects it.
func (d *Decider) Of(g *v1beta1.GPUNode, labels map[string]string) *state.Given {
	d.mu.Lock()
	order := d.order
	d.mu.Unlock()
	return given(selecting(order, g, labels), rollout.Joins(&g.Status))
}

func given(p *plan, joining bool) *state.Given {
	if p == nil {
		return nil
	}
	return &state.Given{Plan: p.Name, Profile: p.Spec.ProfileName, Snapshot: rollout.Assign(p.PartitionPlan, joining)}
}

// Pending returns why a node may not have a profile yet, or nil if it may.
func (d *Decider) Pending(g *v1beta1.GPUNode, wanted *v1beta1.ProfileSnapshot) *state.Pending {
	s := &g.Status
	if s.Desired == nil || s.Desired.Hash == wanted.Hash || d.mayBegin(g, wanted.Hash) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch stopped := d.result.Stopped[wanted.Hash]; {
	case wanted.Source == v1beta1.FromPlan:
		return &state.Pending{Reason: names.ReasonWaitsForPlan, Message: fmt.Sprintf(
			"PartitionPlan %s gives the node another version of profile %s later", wanted.PlanName, wanted.ProfileName)}
	case len(stopped) > 0:
		failed := lists.Map(stopped, func(p v1beta1.PlanNode) string { return p.NodeName + ": " + p.Reason })
		return &state.Pending{Reason: names.ReasonTooManyFailures, Message: fmt.Sprintf(
			"more nodes failed with %s than may (the chart's controller.maxFailures: %s): %s", text.Profile(wanted.ProfileName), d.MaxFailures.String(), text.List(failed, 5))}
	case s.RequestsTaints():
		return nil // It has the place of another switch, which this one replaces.
	}
	return &state.Pending{Reason: names.ReasonWaitsForNodes, Message: fmt.Sprintf(
		"the switch to %s waits for other nodes: %s may be switched at once (the chart's controller.maxUnavailable)", text.Profile(wanted.ProfileName), d.MaxUnavailable.String())}
}

// Admitted reports whether a node may begin the switch that it has planned. Otherwise others says
// what it waits for.
func (d *Decider) Admitted(g *v1beta1.GPUNode) (ok bool, others string) {
	s := &g.Status
	switch {
	case s.Switch == nil:
		return false, ""
	case s.RequestsTaints(), d.mayBegin(g, s.Switch.To.Hash):
		return true, ""
	case s.Switch.To.Source == v1beta1.FromPlan:
		return false, fmt.Sprintf(": kubectl tranche rollout status %s says why", s.Switch.To.PlanName)
	}
	moving, _ := d.Switching()
	return false, fmt.Sprintf(": %d are being switched, and %s may be at once (the chart's controller.maxUnavailable)", moving, d.MaxUnavailable.String())
}

// Switching returns how many nodes without a plan are being switched, and how many may be.
func (d *Decider) Switching() (nodes, limit int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.result.Moving, d.result.Limit
}

// Plans returns the plans as they were decided last.
func (d *Decider) Plans() []*v1beta1.PartitionPlan {
	d.mu.Lock()
	defer d.mu.Unlock()
	return lists.Map(d.order, func(p *plan) *v1beta1.PartitionPlan { return p.PartitionPlan })
}
