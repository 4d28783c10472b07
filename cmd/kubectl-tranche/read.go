package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
)

// reader reads what the picture shows.
type reader struct {
	connection
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
		if in.Nodes, err = r.nodesWith(ctx, r.selector); err != nil {
			return in, view, err
		}
		view.Nodes = selected(r.only, in.Nodes)
	}
	if in.Slices, err = r.slices(ctx, view.Nodes); err != nil {
		return in, view, err
	}
	fallback := cmp.Or(r.namespace, r.own)
	// The claims of all namespaces, even if only one is asked for: what somebody else holds is not free.
	unread, err := read.Into(ctx, r, read.Claims, fallback, &in.Claims)
	if err != nil {
		return in, view, fmt.Errorf("list ResourceClaims: %w", err)
	}
	all := func(unread text.Unread, _ error) bool {
		if unread.Message != "" {
			in.Unread = append(in.Unread, unread)
		}
		return unread.Message == ""
	}
	in.Partial = !all(unread, nil)
	all(read.Into(ctx, r, read.Classes, "", &in.Classes))
	if len(in.Slices) > 0 && r.selector == "" {
		all(read.Into(ctx, r, read.Nodes, "", &in.Nodes))
	}
	all(read.Into(ctx, r, read.Rules, "", &in.Rules))
	all(read.Into(ctx, r, read.GPUNodes, "", &in.GPUNodes))
	in.PodsKnown = all(read.Into(ctx, r, read.Pods, fallback, &in.PendingPods)) || in.Partial && in.PendingPods != nil
	return in, view, nil
}

// selected returns the names of nodes, of those that were asked for.
func selected(only []string, nodes []corev1.Node) []string {
	names := []string{}
	for i := range nodes {
		if len(only) == 0 || slices.Contains(only, nodes[i].Name) {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// slices reads those of the nodes, nil for all. A handful of nodes is read one by one.
func (r reader) slices(ctx context.Context, nodes []string) ([]resourceapi.ResourceSlice, error) {
	if nodes == nil || len(nodes) > handful {
		all, err := read.List[resourceapi.ResourceSlice](ctx, r, "", read.Slices.Only)
		return all, slicesError(err)
	}
	var all []resourceapi.ResourceSlice
	for _, node := range nodes {
		selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: names.DriverName, resourceapi.ResourceSliceSelectorNodeName: node}
		some, err := read.List[resourceapi.ResourceSlice](ctx, r, "", metav1.ListOptions{FieldSelector: selector.String()})
		if err != nil {
			return nil, slicesError(err)
		}
		all = append(all, some...)
	}
	return all, nil
}
