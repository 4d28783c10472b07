package waiting

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// node is a node with GPUs. It has the verdicts for demands since it has changed.
type node struct {
	name     string
	verdicts map[*demand]*fit.Outcome
}

// updateNodes removes the verdicts about nodes that have changed.
func (e *Explainer) updateNodes(ctx context.Context, changed changeSet) error {
	for name, n := range e.nodes {
		if changed.allNodes || changed.nodes[name] {
			clear(n.verdicts)
		}
	}
	var all v1beta1.GPUNodeList
	if err := e.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list GPUNodes: %w", err)
	}
	there := make(map[string]bool, len(all.Items))
	for i := range all.Items {
		name := all.Items[i].Name
		there[name] = true
		if e.nodes[name] == nil {
			e.nodes[name] = &node{name: name, verdicts: map[*demand]*fit.Outcome{}}
		}
	}
	for name, n := range e.nodes {
		if !there[name] {
			clear(n.verdicts)
			delete(e.nodes, name)
		}
	}
	return nil
}

// judge judges nodes for demands without room, first those that had room before.
func (e *Explainer) judge(ctx context.Context, _ changeSet) error {
	began := time.Now()
	if err := e.checkDemands(ctx); err != nil {
		return err
	}
	defer func() {
		for _, d := range e.demands {
			if d.ready() {
				e.settle(d)
			}
		}
	}()
	for _, hadRoom := range []bool{true, false} {
		for _, n := range e.nodes {
			var todo []*demand
			for _, d := range e.demands {
				if _, judged := n.verdicts[d]; !judged && d.ready() && !d.hasRoom() && (!hadRoom || d.room == n) {
					todo = append(todo, d)
				}
			}
			if len(todo) == 0 {
				continue
			}
			if err := e.judgeNode(ctx, n, todo); err != nil {
				return err
			}
			if time.Since(began) > judgingPerRound {
				return nil
			}
		}
	}
	return nil
}

// ready reports whether nodes are judged for a demand.
func (d *demand) ready() bool { return d.checked && d.retryAt.IsZero() }

// checkDemands drops demands that only other drivers can serve. It ends backoffs.
func (e *Explainer) checkDemands(ctx context.Context) error {
	classes, err := e.classes(ctx)
	if err != nil {
		return err
	}
	for _, d := range e.demands {
		if e.Clock.Now().Before(d.retryAt) {
			continue
		}
		d.retryAt = time.Time{}
		if d.checked {
			continue
		}
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, e.budget.node)
		ours, certain, err := fit.Narrow(limited, d.Demand, cluster.Objects{Classes: classes, Compiled: e.compiled})
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			e.took(d, max(time.Since(start), e.budget.node))
		case ours:
			d.checked, d.certain = true, certain
		default:
			for key := range d.pods {
				e.leave(key, e.pods[key])
			}
		}
	}
	return nil
}

// judgeNode judges a node for demands, and then pauses for as long as that took.
func (e *Explainer) judgeNode(ctx context.Context, n *node, demands []*demand) error {
	objects, err := e.objects(ctx, n.name)
	if apierrors.IsNotFound(err) {
		return nil // the next round removes it
	}
	if err != nil {
		return err
	}
	began := time.Now()
	model := fit.NewNodeModel(objects)
	for _, d := range demands {
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, e.budget.node)
		v := model.Judge(limited, n.name, d.Demand)
		cancel()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("judge node %s: %w", n.name, err)
		}
		if n.verdicts[d] = d.shared(v); v.Verdict == fit.Fits {
			d.room = n
		}
		e.took(d, time.Since(start))
	}
	return sleep.For(ctx, time.Since(began))
}

// objects reads what decides about a node.
func (e *Explainer) objects(ctx context.Context, name string) (cluster.Objects, error) {
	in := cluster.Objects{Now: e.Clock.Now(), Compiled: e.compiled}
	var gpuNode v1beta1.GPUNode
	if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, &gpuNode); err != nil {
		return in, err
	}
	in.GPUNodes = []v1beta1.GPUNode{gpuNode}
	var node corev1.Node
	if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err == nil {
		in.Nodes = []corev1.Node{node}
	} else if !apierrors.IsNotFound(err) {
		return in, fmt.Errorf("read node %s: %w", name, err)
	}
	var err error
	if in.Classes, err = e.classes(ctx); err != nil {
		return in, err
	}
	if e.HasRules {
		var rules resourceapi.DeviceTaintRuleList
		if err := e.Client.List(ctx, &rules, client.UnsafeDisableDeepCopy); err != nil {
			return in, fmt.Errorf("list DeviceTaintRules: %w", err)
		}
		in.Rules = rules.Items
	}
	limited, cancel, err := e.call(ctx)
	defer cancel()
	if err != nil {
		return in, err
	}
	var published resourceapi.ResourceSliceList
	if err := e.Reader.List(limited, &published, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: name}); err != nil {
		return in, fmt.Errorf("list the ResourceSlices of node %s: %w", name, err)
	}
	in.Slices = append([]resourceapi.ResourceSlice{}, published.Items...)
	// After the slices: a claim that holds a device is allocated to what is published.
	var claims resourceapi.ResourceClaimList
	if err := e.Client.List(ctx, &claims, client.MatchingFields{drain.NodeIndex: name}); err != nil {
		return in, fmt.Errorf("list the ResourceClaims of node %s: %w", name, err)
	}
	in.Claims = claims.Items
	return in, nil
}

func (e *Explainer) classes(ctx context.Context) ([]resourceapi.DeviceClass, error) {
	var all resourceapi.DeviceClassList
	if err := e.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list DeviceClasses: %w", err)
	}
	return append([]resourceapi.DeviceClass{}, all.Items...), nil
}
