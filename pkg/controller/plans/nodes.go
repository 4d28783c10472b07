package plans

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/fleet/rollout"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// plan is a plan and its selector.
type plan struct {
	*v1alpha1.PartitionPlan
	selector labels.Selector
	// invalid says what is wrong with the selector.
	invalid string
}

func newPlan(p *v1alpha1.PartitionPlan) *plan {
	out := &plan{PartitionPlan: p, selector: labels.Everything()}
	if p.Spec.NodeSelector == nil {
		return out
	}
	s, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if err != nil {
		out.selector, out.invalid = labels.Nothing(), fmt.Sprintf("spec.nodeSelector: %v", err)
		return out
	}
	out.selector = s
	return out
}

// listPlans lists the plans by precedence. Those that are being deleted select no node.
func (k *Keeper) listPlans(ctx context.Context) ([]*plan, error) {
	var all v1alpha1.PartitionPlanList
	if err := k.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the PartitionPlans: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := map[string]bool{}
	var order []*plan
	for i := range all.Items {
		p := &all.Items[i]
		known[p.Name] = true
		switch newer := k.plans[p.Name]; {
		case newer != nil && isNewer(newer, p):
			p = newer
		default:
			delete(k.plans, p.Name)
			p = p.DeepCopy()
		}
		if p.DeletionTimestamp == nil {
			order = append(order, newPlan(p))
		}
	}
	for name, p := range k.plans {
		switch {
		case known[name]:
		case k.begun:
			delete(k.plans, name)
		default: // The cache is late.
			order = append(order, newPlan(p))
		}
	}
	slices.SortFunc(order, func(a, b *plan) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return order, nil
}

// isNewer tells whether an object is newer than another one.
func isNewer(a, b client.Object) bool {
	if a.GetUID() != b.GetUID() {
		return !a.GetCreationTimestamp().Time.Before(b.GetCreationTimestamp().Time)
	}
	c, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && c > 0
}

// selecting is the plan that selects a node, nil: none does. Plans that give nothing select
// nothing. One with an invalid selector keeps the nodes that it has.
func selecting(order []*plan, g *v1alpha1.GPUNode, of map[string]string) *plan {
	if _, controlPlane := of[state.ControlPlaneLabel]; controlPlane {
		return nil
	}
	for _, p := range order {
		selects := p.selector.Matches(labels.Set(of))
		if p.invalid != "" {
			selects = g.Status.Desired != nil && g.Status.Desired.Plan == p.Name
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
	nodes []*rollout.Node
	// of are the nodes of each plan, others those of each profile without one.
	of, others map[string][]*rollout.Node
	// assigned is what each node is to have.
	assigned map[string]string
	// beginning are nodes that begin, and are not yet observed to have done so.
	beginning map[string]bool
}

// observe finds out what is known of the nodes, and to whom they belong.
func (k *Keeper) observe(ctx context.Context, order []*plan, now time.Time) (*fleet, error) {
	var gpuNodes v1alpha1.GPUNodeList
	if err := k.Client.List(ctx, &gpuNodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the GPUNodes: %w", err)
	}
	var nodes corev1.NodeList
	if err := k.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	byName := make(map[string]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = &nodes.Items[i]
	}
	k.mu.Lock()
	f := &fleet{of: map[string][]*rollout.Node{}, others: map[string][]*rollout.Node{}, assigned: map[string]string{}, beginning: maps.Clone(k.beginning)}
	keeps := maps.Clone(k.keeps)
	k.mu.Unlock()
	byPlan := map[string]*plan{}
	for _, p := range order {
		byPlan[p.Name] = p
	}
	versions := versionOf(order)
	maps.DeleteFunc(k.chosen, func(name string, _ chosen) bool { return byName[name] == nil })
	for _, g := range k.newest(gpuNodes.Items) {
		node := byName[g.Name]
		if node == nil || g.Status.Node != nil && !g.Status.Node.HasGPUs() {
			continue
		}
		ready, until := k.isReady(node, now)
		n := rollout.Observe(g, node.Labels, ready, now)
		n.Wake = rollout.Earliest(n.Wake, until)
		n.Moving = n.Moving || f.beginning[g.Name]
		p := byPlan[k.choose(order, versions, g, node)]
		f.nodes = append(f.nodes, &n)
		follows := state.NamedBy(g, state.ControlPlane(node), k.given(p, n.Joining))
		if p != nil {
			n.Overruled = !follows.FollowsPlan()
			f.of[p.Name] = append(f.of[p.Name], &n)
			f.assigned[g.Name] = fmt.Sprint(p.Name, p.Status.Target, n.Overruled)
		}
		if p == nil || n.Overruled {
			want, other := k.want(g), n
			other.Overruled = false // It follows what it is counted for here.
			if n.Moving || !keeps[g.Name] {
				f.others[want] = append(f.others[want], &other)
			}
			f.assigned[g.Name] += want
		}
	}
	return f, nil
}

// versionOf changes when other nodes may be selected.
func versionOf(order []*plan) uint64 {
	var text string
	for _, p := range order {
		text += fmt.Sprintf("%s/%d/%t;", p.UID, p.Generation, rollout.Gives(p.PartitionPlan))
	}
	return sum(text)
}

// choose is the name of the plan that selects a node. It remembers the answer.
func (k *Keeper) choose(order []*plan, versions uint64, g *v1alpha1.GPUNode, node *corev1.Node) string {
	if k.chosen == nil {
		k.chosen = map[string]chosen{}
	}
	if c, ok := k.chosen[node.Name]; ok && c.version == node.ResourceVersion && c.plans == versions {
		return c.plan
	}
	c := chosen{version: node.ResourceVersion, plans: versions}
	if p := selecting(order, g, node.Labels); p != nil {
		c.plan = p.Name
	}
	k.chosen[node.Name] = c
	return c.plan
}

// newest are the newest known versions of GPUNodes.
func (k *Keeper) newest(cached []v1alpha1.GPUNode) []*v1alpha1.GPUNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*v1alpha1.GPUNode, 0, len(cached))
	known := map[string]bool{}
	for i := range cached {
		g := &cached[i]
		known[g.Name] = true
		if newer := k.nodes[g.Name]; newer != nil && isNewer(newer, g) {
			g = newer
		} else {
			delete(k.nodes, g.Name)
		}
		out = append(out, g)
	}
	for name, g := range k.nodes {
		if !known[name] {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.GPUNode) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// want is the hash of the profile that a node without a plan is to have.
func (k *Keeper) want(g *v1alpha1.GPUNode) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if want, ok := k.wants[g.Name]; ok {
		return want
	}
	return rollout.HashOf(g.Status.Desired)
}

// isReady tells whether a node can be switched; if its status could not be written, until when
// it cannot.
func (k *Keeper) isReady(node *corev1.Node, now time.Time) (ready bool, refused time.Time) {
	k.mu.Lock()
	until := k.refused[node.Name]
	k.mu.Unlock()
	if now.Before(until) {
		return false, until
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, time.Time{}
		}
	}
	return true, time.Time{}
}

// profile is the current version of a profile, nil: there is none.
func (k *Keeper) profile(ctx context.Context, name string, from client.Reader) (*v1alpha1.ProfileSnapshot, error) {
	var p v1alpha1.PartitionProfile
	if err := from.Get(ctx, client.ObjectKey{Name: name}, &p); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read PartitionProfile %s: %w", name, err)
	}
	key := string(p.UID) + "/" + p.ResourceVersion
	if known := k.profiles[key]; known != nil && known.Profile == name {
		return known, nil
	}
	if k.profiles == nil || len(k.profiles) > 1000 {
		k.profiles = map[string]*v1alpha1.ProfileSnapshot{}
	}
	k.profiles[key] = &v1alpha1.ProfileSnapshot{Profile: name, Hash: profile.Hash(name, p.Spec.Rules), Rules: p.Spec.Rules}
	return k.profiles[key], nil
}
