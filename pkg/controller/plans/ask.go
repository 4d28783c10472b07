package plans

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/fleet/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
)

func sum(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// Of is what the plan that selects a node gives it, nil: no plan selects it.
func (k *Keeper) Of(g *v1alpha1.GPUNode, labels map[string]string) *state.Given {
	k.mu.Lock()
	order := k.order
	k.mu.Unlock()
	return k.given(selecting(order, g, labels), rollout.Joins(&g.Status))
}

func (k *Keeper) given(p *plan, joining bool) *state.Given {
	if p == nil {
		return nil
	}
	return &state.Given{Plan: p.Name, Profile: p.Spec.Profile, Snapshot: rollout.Assign(p.PartitionPlan, joining)}
}

// Keeps makes the keeper know that a node keeps what it has, so that it takes no place.
func (k *Keeper) Keeps(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.wants, node)
	if k.keeps[node] {
		return
	}
	if k.keeps == nil {
		k.keeps = map[string]bool{}
	}
	k.keeps[node] = true
	k.Again()
}

// Admit tells whether a node may have a profile now, nil, or why not.
func (k *Keeper) Admit(g *v1alpha1.GPUNode, wanted *v1alpha1.ProfileSnapshot) *state.Pending {
	s := &g.Status
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keeps[g.Name] {
		delete(k.keeps, g.Name)
		k.Again()
	}
	fromPlan := wanted.Source == v1alpha1.FromPlan
	before, had := k.wants[g.Name]
	if fromPlan || rollout.HashOf(s.Desired) == wanted.Hash {
		delete(k.wants, g.Name)
	} else if !had || before != wanted.Hash {
		if k.wants == nil {
			k.wants = map[string]string{}
		}
		k.wants[g.Name] = wanted.Hash
		k.Again()
	}
	stopped := k.result.Stopped[wanted.Hash]
	switch {
	case s.Desired == nil, s.Desired.Hash == wanted.Hash, rollout.HashOf(s.Applied) == wanted.Hash, rollout.Joins(s):
		return nil // It has it, or nothing has to change for it, or nobody is disturbed.
	case k.result.Granted[g.Name] == wanted.Hash:
		return nil
	case fromPlan:
		return &state.Pending{Reason: names.ReasonWaitsForPlan, Message: fmt.Sprintf(
			"PartitionPlan %s gives the node another version of profile %s later", wanted.Plan, wanted.Profile)}
	case len(stopped) > 0:
		return &state.Pending{Reason: names.ReasonTooManyFailures, Message: fmt.Sprintf(
			"more nodes failed with %s than may (--max-failures %s): %s", state.ProfileText(wanted.Profile), k.MaxFailures.String(), text.List(nodeNames(stopped), 5))}
	case s.OrdersTaints():
		return nil // It has the place of another switch, which this one replaces.
	}
	return &state.Pending{Reason: names.ReasonWaitsForNodes, Message: fmt.Sprintf(
		"%s waits for other nodes: %s may be switched at once (--max-unavailable)", state.ProfileText(wanted.Profile), k.MaxUnavailable.String())}
}

func nodeNames(nodes []v1alpha1.PlanNode) (all []string) {
	for i := range nodes {
		all = append(all, nodes[i].Node+": "+nodes[i].Reason)
	}
	return all
}

// Granted tells whether a node may begin the switch that it has planned. Otherwise others says
// what it waits for.
func (k *Keeper) Granted(g *v1alpha1.GPUNode) (ok bool, others string) {
	s := &g.Status
	if s.Switch == nil {
		return false, ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mayBegin(g) {
		return true, ""
	}
	if s.Switch.To.Source == v1alpha1.FromPlan {
		return false, fmt.Sprintf(": kubectl tranche rollout status %s says why", s.Switch.To.Plan)
	}
	return false, fmt.Sprintf(": %d are being switched, and %s may be at once (--max-unavailable)", k.result.Moving, k.MaxUnavailable.String())
}

// mayBegin requires mu.
func (k *Keeper) mayBegin(g *v1alpha1.GPUNode) bool {
	s := &g.Status
	to := s.Switch.To.Hash
	return k.result.Granted[g.Name] == to || rollout.HashOf(s.Applied) == to || rollout.Joins(s) || s.OrdersTaints()
}

// Begins makes the keeper know that a node is about to begin its switch. It tells whether the
// node may still do so.
func (k *Keeper) Begins(g *v1alpha1.GPUNode) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.mayBegin(g) {
		return false
	}
	if k.beginning == nil {
		k.beginning = map[string]bool{}
	}
	k.beginning[g.Name] = true
	return true
}

// Seen makes the keeper know a GPUNode that was just written or read from the API server.
func (k *Keeper) Seen(g *v1alpha1.GPUNode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nodes == nil {
		k.nodes = map[string]*v1alpha1.GPUNode{}
	}
	if old := k.nodes[g.Name]; old == nil || isNewer(g, old) {
		k.nodes[g.Name] = g.DeepCopy()
	}
	delete(k.beginning, g.Name)
}

// Gone forgets a node.
func (k *Keeper) Gone(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, node)
	delete(k.wants, node)
	delete(k.keeps, node)
	delete(k.beginning, node)
	delete(k.refused, node)
	delete(k.result.Granted, node)
	k.Again()
}

// Refused leaves a node out for a while because its status cannot be written. Other nodes do not
// wait for it.
func (k *Keeper) Refused(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused == nil {
		k.refused = map[string]time.Time{}
	}
	k.refused[node] = k.Clock.Now().Add(refusedFor)
	delete(k.result.Granted, node)
	k.Again()
}

// Switching is how many nodes without a plan are being switched, and how many may be.
func (k *Keeper) Switching() (nodes, limit int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.result.Moving, k.result.Limit
}

// Plans are the plans as they were decided last.
func (k *Keeper) Plans() []*v1alpha1.PartitionPlan {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*v1alpha1.PartitionPlan, 0, len(k.order))
	for _, p := range k.order {
		all = append(all, p.PartitionPlan)
	}
	return all
}
