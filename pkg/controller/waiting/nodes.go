package waiting

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/why"
)

// judgeAll has all nodes judged for shapes for which they are not.
func (r *Reconciler) judgeAll(ctx context.Context) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	r.memory.setNodes(nodes, r.Clock.Now())
	for _, name := range nodes {
		r.JudgeSoon(requestFor(name))
	}
	return nil
}

// nodes are the names of the nodes with GPUs.
func (r *Reconciler) nodes(ctx context.Context) ([]string, error) {
	var all v1alpha1.GPUNodeList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list GPUNodes: %w", err)
	}
	names := make([]string, 0, len(all.Items))
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names, nil
}

// reconcileNode judges a node for the pods that wait.
func (r *Reconciler) reconcileNode(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := request.Name
	shapes := r.memory.toJudge(name)
	if len(shapes) == 0 {
		return reconcile.Result{}, nil
	}
	objects, err := r.facts(ctx, name)
	if apierrors.IsNotFound(err) {
		if r.memory.gone(name, r.Clock.Now()) {
			return reconcile.Result{}, r.judgeAll(ctx)
		}
		return reconcile.Result{}, nil
	}
	if err == nil {
		err = r.judge(ctx, name, objects, shapes)
	}
	if err != nil {
		r.memory.changed(name)
	}
	return reconcile.Result{}, err
}

// judge judges a node for shapes.
func (r *Reconciler) judge(ctx context.Context, name string, objects cluster.Objects, shapes []*shape) error {
	began, others := time.Now(), false
	site := why.NewSite(objects, name)
	for _, s := range shapes {
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, r.memory.forNode(s))
		a, known := site.Answer(limited, s.wish)
		cancel()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("judge node %s for pods that wait: %w", name, err)
		}
		others = r.memory.judged(s, name, verdictOf(a, known), time.Since(start), r.Clock.Now()) || others
	}
	took := time.Since(began)
	klog.FromContext(ctx).V(4).Info("Judged a node for pods that wait", "node", name, "shapes", len(shapes), "took", took)
	if others {
		if err := r.judgeAll(ctx); err != nil {
			return err
		}
	}
	if err := r.Effort.WaitN(ctx, min(int(took.Milliseconds()), r.Effort.Burst())); err != nil {
		return fmt.Errorf("wait before the next node: %w", err)
	}
	return nil
}

// facts reads what decides about a node.
func (r *Reconciler) facts(ctx context.Context, name string) (cluster.Objects, error) {
	in := cluster.Objects{Now: r.Clock.Now(), Compiled: r.compiled}
	var gpuNode v1alpha1.GPUNode
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &gpuNode); err != nil {
		return in, err
	}
	in.GPUNodes = []v1alpha1.GPUNode{gpuNode}
	var node corev1.Node
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err == nil {
		in.Nodes = []corev1.Node{node}
	} else if !apierrors.IsNotFound(err) {
		return in, fmt.Errorf("read node %s: %w", name, err)
	}
	var err error
	if in.Classes, err = r.classes(ctx); err != nil {
		return in, err
	}
	if in.Rules, err = r.rules(ctx); err != nil {
		return in, err
	}
	if err := r.limit(ctx); err != nil {
		return in, err
	}
	var published resourceapi.ResourceSliceList
	if err := r.Reader.List(ctx, &published, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: name}); err != nil {
		return in, fmt.Errorf("list the ResourceSlices of node %s: %w", name, err)
	}
	in.Slices = append([]resourceapi.ResourceSlice{}, published.Items...)
	// After the slices: a claim that holds a device is allocated to what is published.
	var claims resourceapi.ResourceClaimList
	if err := r.Client.List(ctx, &claims, client.MatchingFields{drain.NodeIndex: name}); err != nil {
		return in, fmt.Errorf("list the ResourceClaims of node %s: %w", name, err)
	}
	in.Claims = claims.Items
	return in, nil
}

func (r *Reconciler) classes(ctx context.Context) ([]resourceapi.DeviceClass, error) {
	var all resourceapi.DeviceClassList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list DeviceClasses: %w", err)
	}
	return append([]resourceapi.DeviceClass{}, all.Items...), nil
}

func (r *Reconciler) rules(ctx context.Context) ([]resourceapi.DeviceTaintRule, error) {
	if !r.HasRules {
		return nil, nil
	}
	var all resourceapi.DeviceTaintRuleList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list DeviceTaintRules: %w", err)
	}
	return all.Items, nil
}

// nodesOf are the nodes of a DeviceTaintRule: one, or all.
func nodesOf(rule *resourceapi.DeviceTaintRule) (node string, all bool) {
	if s := rule.Spec.DeviceSelector; s != nil && s.Pool != nil {
		return names.NodeOfPool(*s.Pool), false
	}
	return "", true
}
