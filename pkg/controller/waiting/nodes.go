package waiting

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/why"
)

// judgeAll has all nodes judged.
func (r *Reconciler) judgeAll(ctx context.Context) error {
	nodes, err := r.nodes(ctx)
	for _, name := range nodes {
		r.JudgeSoon(name)
	}
	if len(nodes) == 0 && err == nil {
		return r.tellNews(ctx)
	}
	return err
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
	in, err := r.facts(ctx, name)
	if apierrors.IsNotFound(err) {
		if r.memory.gone(name) {
			return reconcile.Result{}, r.judgeAll(ctx)
		}
		return reconcile.Result{}, r.tellNews(ctx)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	all := false
	for key, s := range shapes {
		of := in
		of.Pod, of.Claims = s.pod, slices.Clone(s.claims)
		for i := range in.Claims {
			own := func(c resourceapi.ResourceClaim) bool { return c.UID == in.Claims[i].UID }
			if !slices.ContainsFunc(s.claims, own) {
				of.Claims = append(of.Claims, in.Claims[i])
			}
		}
		a := why.OnNode(ctx, of, name)
		all = r.memory.judged(key, name, a) || all
	}
	klog.FromContext(ctx).V(4).Info("Judged a node for pods that wait", "node", name, "shapes", len(shapes))
	if all {
		return reconcile.Result{}, r.judgeAll(ctx)
	}
	return reconcile.Result{}, r.tellNews(ctx)
}

// facts reads what decides about a node.
func (r *Reconciler) facts(ctx context.Context, name string) (why.Input, error) {
	var in why.Input
	in.Now = r.Clock.Now()
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
		return gpu.NodeOfPool(*s.Pool), false
	}
	return "", true
}
