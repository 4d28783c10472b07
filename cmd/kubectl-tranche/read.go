package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// source has the objects that a picture shows: the lists of the API server, or what watches keep.
type source interface {
	listSlices(ctx context.Context, selector string) ([]resourceapi.ResourceSlice, error)
	listClaims(ctx context.Context, namespace string) ([]resourceapi.ResourceClaim, error)
	listClasses(ctx context.Context) ([]resourceapi.DeviceClass, error)
	listRules(ctx context.Context) ([]resourceapi.DeviceTaintRule, error)
	listGPUNodes(ctx context.Context) ([]v1alpha1.GPUNode, error)
	listPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error)
	// nodes lists the nodes with these labels, empty for all.
	nodes(ctx context.Context, labels string) ([]corev1.Node, error)
}

// reader reads what the picture shows.
type reader struct {
	source
	// only are the nodes that were asked for, nil for all; selector is for their labels.
	only     []string
	selector string
	now      time.Time
	// namespace is the one that was asked for, empty for all.
	namespace string
	// own is the namespace of the kubeconfig, which is read if not all may be.
	own string
}

func (r reader) read(ctx context.Context) (cluster.Objects, cluster.View, error) {
	in := cluster.Objects{Now: r.now}
	view := cluster.View{Namespace: r.namespace, Nodes: r.only, Selector: r.selector}
	var err error
	if r.selector != "" {
		if in.Nodes, err = r.nodes(ctx, r.selector); err != nil {
			return in, view, fmt.Errorf("list the nodes with the labels %s: %w", r.selector, err)
		}
		view.Nodes = r.selected(in.Nodes)
	}
	if in.Slices, err = r.slices(ctx, view.Nodes); err != nil {
		return in, view, err
	}
	if err := r.claims(ctx, &in); err != nil {
		return in, view, err
	}
	r.extras(ctx, &in)
	return in, view, nil
}

// selected are the names of nodes, of those that were asked for.
func (r reader) selected(nodes []corev1.Node) []string {
	names := []string{}
	for i := range nodes {
		if r.only == nil || slices.Contains(r.only, nodes[i].Name) {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// slices reads those of the nodes, nil for all. A handful of nodes is read one by one.
func (r reader) slices(ctx context.Context, nodes []string) ([]resourceapi.ResourceSlice, error) {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: names.DriverName}
	if nodes == nil || len(nodes) > handful {
		return r.some(ctx, selector)
	}
	var all []resourceapi.ResourceSlice
	for _, node := range nodes {
		selector[resourceapi.ResourceSliceSelectorNodeName] = node
		some, err := r.some(ctx, selector)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (r reader) some(ctx context.Context, selector fields.Set) ([]resourceapi.ResourceSlice, error) {
	slices, err := r.listSlices(ctx, selector.String())
	return slices, slicesError(err)
}

// slicesError says what to do if ResourceSlices cannot be listed.
func slicesError(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you are not allowed to list ResourceSlices; ask for a ClusterRole "+
			"with get and list on resourceslices.resource.k8s.io: %w", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server does not serve resource.k8s.io/v1; Tranche requires Kubernetes 1.36 or later: %w", err)
	case err != nil:
		return fmt.Errorf("list ResourceSlices: %w", err)
	}
	return nil
}

// claims reads the claims of all namespaces, even if only one is asked for: what somebody
// else holds is not free. A user without the right sees what they may see, and is told.
func (r reader) claims(ctx context.Context, in *cluster.Objects) error {
	var err error
	if in.Claims, err = r.listClaims(ctx, metav1.NamespaceAll); apierrors.IsForbidden(err) {
		in.Partial = true
		in.Claims, err = r.listClaims(ctx, r.fallback())
		if apierrors.IsForbidden(err) {
			in.Notes = append(in.Notes, fmt.Sprintf("you are not allowed to list ResourceClaims, neither in all namespaces nor in %q. "+
				"Holders and free capacity are not shown.", r.fallback()))
			return nil
		}
		in.Notes = append(in.Notes, fmt.Sprintf("you are allowed to list ResourceClaims in the namespace %q only. "+
			"Holders in other namespaces and free capacity are not shown.", r.fallback()))
	}
	if err != nil {
		return fmt.Errorf("list ResourceClaims: %w", err)
	}
	return nil
}

// fallback is the namespace to read if not all may be.
func (r reader) fallback() string {
	if r.namespace != "" {
		return r.namespace
	}
	return r.own
}

// extras reads what adds to the picture. It is true without them, so a user who may not
// list classes or pods is not bothered with it. Nodes and taints are different: without them
// GPUs look free that are not.
func (r reader) extras(ctx context.Context, in *cluster.Objects) {
	in.Classes, _ = r.listClasses(ctx)
	var err error
	if len(in.Slices) > 0 && r.selector == "" {
		if in.Nodes, err = r.nodes(ctx, ""); err != nil {
			in.Notes = append(in.Notes, "nodes cannot be read, so it is not shown which are cordoned or not ready: "+unreadable(err)+".")
		}
	}
	if in.Rules, err = r.listRules(ctx); err != nil {
		in.Notes = append(in.Notes, "DeviceTaintRules cannot be read, so the taints that they add are not shown: "+err.Error()+".")
	}
	if in.GPUNodes, err = r.listGPUNodes(ctx); err != nil {
		in.Notes = append(in.Notes, "GPUNodes cannot be read, so profiles and switches are not shown: "+err.Error()+".")
	}
	namespace := metav1.NamespaceAll
	if in.Partial {
		namespace = r.fallback()
	}
	in.PendingPods, err = r.listPods(ctx, namespace, "status.phase=Pending,spec.nodeName=")
	in.PodsKnown = err == nil
}
