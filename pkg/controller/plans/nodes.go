package plans

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// plan is a plan and its selector.
type plan struct {
	*v1beta1.PartitionPlan
	selector labels.Selector
	// invalid says what is wrong with the selector.
	invalid string
}

func newPlan(p *v1beta1.PartitionPlan) *plan {
	s, err := rollout.Selector(p)
	out := &plan{PartitionPlan: p, selector: s}
	if err != nil {
		out.invalid = err.Error()
	}
	return out
}

// listPlans lists the plans by precedence. Those that are being deleted select no node.
func (d *Decider) listPlans(ctx context.Context) ([]*plan, error) {
	var all v1beta1.PartitionPlanList
	if err := d.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the PartitionPlans: %w", err)
	}
	var order []*plan
	for _, p := range d.plans.newest(pointers(all.Items), !d.Decided()) {
		if p.DeletionTimestamp == nil {
			order = append(order, newPlan(p))
		}
	}
	slices.SortFunc(order, func(a, b *plan) int { return rollout.ComparePlans(a.PartitionPlan, b.PartitionPlan) })
	return order, nil
}

// selecting returns the plan that selects a node, or nil if none does. Plans that give nothing select
// nothing. One with an invalid selector keeps the nodes that it has.
func selecting(order []*plan, g *v1beta1.GPUNode, of map[string]string) *plan {
	if _, controlPlane := of[rollout.ControlPlaneLabel]; controlPlane {
		return nil
	}
	for _, p := range order {
		selects := p.selector.Matches(labels.Set(of))
		if p.invalid != "" {
			selects = g.Status.Desired != nil && g.Status.Desired.PlanName == p.Name
		}
		if selects && rollout.Gives(p.PartitionPlan) {
			return p
		}
	}
	return nil
}

// chosen is the plan of a node, for one version of the node and of the plans.
type chosen struct {
	version string
	plans   uint64
	plan    string
}

// fleet is what is known of all nodes.
type fleet struct {
	gpuNodes []*v1beta1.GPUNode
	// nodes are those of them that can be switched.
	nodes map[string]*rollout.Node
	// of are the nodes of each plan, others those without one.
	of     map[string][]*rollout.Node
	others []*rollout.Node
	// assigned is what each node is to have.
	assigned map[string]string
}

// observe finds out what is known of the nodes, and to whom they belong.
func (d *Decider) observe(ctx context.Context, order []*plan, now time.Time) (*fleet, error) {
	var gpuNodes v1beta1.GPUNodeList
	if err := d.Client.List(ctx, &gpuNodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the GPUNodes: %w", err)
	}
	var nodes corev1.NodeList
	if err := d.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	byName, byPlan := assume(pointers(nodes.Items)), map[string]*plan{}
	for _, p := range order {
		byPlan[p.Name] = p
	}
	f := &fleet{
		gpuNodes: d.nodes.newest(pointers(gpuNodes.Items), !d.Decided()),
		nodes:    map[string]*rollout.Node{}, of: map[string][]*rollout.Node{}, assigned: map[string]string{},
	}
	d.mu.Lock()
	problems := maps.Clone(d.problems)
	d.mu.Unlock()
	versions := versionOf(order)
	maps.DeleteFunc(d.chosen, func(name string, _ chosen) bool { return byName[name] == nil })
	for _, g := range f.gpuNodes {
		node := byName[g.Name]
		if node == nil || g.Status.Node != nil && !g.Status.Node.HasGPUs() {
			continue
		}
		ready, until := d.isReady(node, now)
		n := rollout.Observe(g, node.Labels, ready, now)
		n.Wake = rollout.Earliest(n.Wake, until)
		p := byPlan[d.choose(order, versions, g, node)]
		f.nodes[g.Name] = &n
		if p != nil {
			n.Overridden = !state.NamedBy(g, rollout.ControlPlane(node), given(p, n.Joining)).FollowsPlan()
			if why, ok := problems[g.Name]; ok && !n.Failed {
				n.Kept, n.Reason, n.Message = true, why.Reason, why.Message
			}
			f.of[p.Name] = append(f.of[p.Name], &n)
			f.assigned[g.Name] = fmt.Sprint(p.Name, ptr.Deref(p.Status.TargetRevision, 0), n.Overridden)
		}
		if p == nil || n.Overridden {
			other := n
			other.Overridden = false // It follows what it is counted for here.
			f.others = append(f.others, &other)
			f.assigned[g.Name] += cmp.Or(n.Wanted, n.Desired)
		}
	}
	return f, nil
}

// versionOf changes when other nodes may be selected.
func versionOf(order []*plan) uint64 {
	h := fnv.New64a()
	for _, p := range order {
		fmt.Fprintf(h, "%s/%d/%t;", p.UID, p.Generation, rollout.Gives(p.PartitionPlan))
	}
	return h.Sum64()
}

// choose returns the name of the plan that selects a node. It remembers the answer.
func (d *Decider) choose(order []*plan, versions uint64, g *v1beta1.GPUNode, node *corev1.Node) string {
	if d.chosen == nil {
		d.chosen = map[string]chosen{}
	}
	if c, ok := d.chosen[node.Name]; ok && c.version == node.ResourceVersion && c.plans == versions {
		return c.plan
	}
	c := chosen{version: node.ResourceVersion, plans: versions}
	if p := selecting(order, g, node.Labels); p != nil {
		c.plan = p.Name
	}
	d.chosen[node.Name] = c
	return c.plan
}

// isReady reports whether a node can be switched; if its status could not be written, until when
// it cannot.
func (d *Decider) isReady(node *corev1.Node, now time.Time) (ready bool, suspended time.Time) {
	d.mu.Lock()
	until := d.suspended[node.Name]
	d.mu.Unlock()
	if now.Before(until) {
		return false, until
	}
	return rollout.NodeReady(node), time.Time{}
}

// profile returns the current version of the profile of a plan, or nil if there is none.
func (d *Decider) profile(ctx context.Context, of *v1beta1.PartitionPlan, from client.Reader) (*v1beta1.ProfileSnapshot, error) {
	name, stored := of.Spec.ProfileName, rollout.NewestHash(of)
	var p v1beta1.PartitionProfile
	if err := from.Get(ctx, client.ObjectKey{Name: name}, &p); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read PartitionProfile %s: %w", name, err)
	}
	key := string(p.UID) + "/" + p.ResourceVersion + "/" + strings.Join(stored, "/")
	if known := d.profiles[key]; known != nil && known.ProfileName == name {
		return known, nil
	}
	if d.profiles == nil || len(d.profiles) > 1000 {
		d.profiles = map[string]*v1beta1.ProfileSnapshot{}
	}
	snapshot := profile.Snapshot(name, p.Spec.Rules, stored...)
	d.profiles[key] = &snapshot
	return &snapshot, nil
}
