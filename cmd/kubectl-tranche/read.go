package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/picture"
)

// pageSize keeps the answers of a large cluster in digestible pieces.
const pageSize = 500

// reader reads what the picture is made of.
type reader struct {
	client kubernetes.Interface
	ours   client.Interface
	nodes  []string
	now    time.Time
	// namespace is the one that was asked for, empty for all.
	namespace string
	// own is the namespace of the kubeconfig, where a person may most likely
	// read when not everywhere.
	own string
}

func (r reader) read(ctx context.Context) (picture.Input, error) {
	in := picture.Input{OnlyNodes: r.nodes, Namespace: r.namespace, Now: r.now}
	var err error
	if in.Slices, err = r.slices(ctx); err != nil {
		return in, err
	}
	if err := r.claims(ctx, &in); err != nil {
		return in, err
	}
	r.extras(ctx, &in)
	return in, nil
}

func (r reader) slices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: gpu.DriverName}
	if len(r.nodes) == 1 {
		selector[resourceapi.ResourceSliceSelectorNodeName] = r.nodes[0]
	}
	slices, err := pages(selector.String(), func(o metav1.ListOptions) ([]resourceapi.ResourceSlice, string, error) {
		l, err := r.client.ResourceV1().ResourceSlices().List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.Continue, nil
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the cards are in ResourceSlices, which you may not list; ask for a ClusterRole "+
			"with get and list on resourceslices.resource.k8s.io: %w", err)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server does not serve resource.k8s.io/v1, and Tranche needs Kubernetes 1.36 or later: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	return slices, nil
}

// claims reads the claims of all namespaces, even when only one is asked for: a
// piece that somebody else holds is not free. A person who may not is shown
// what they may see, and told.
func (r reader) claims(ctx context.Context, in *picture.Input) error {
	claims, err := r.claimsIn(ctx, metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) {
		in.Claims = claims
		return err
	}
	in.Partial = true
	namespace := r.fallback()
	claims, err = r.claimsIn(ctx, namespace)
	switch {
	case apierrors.IsForbidden(err):
		in.Notes = append(in.Notes, fmt.Sprintf("you may list ResourceClaims neither in all namespaces nor in %q, so no holders are shown, "+
			"and nothing can be said about what is free.", namespace))
		return nil
	case err != nil:
		return err
	}
	in.Claims = claims
	in.Notes = append(in.Notes, fmt.Sprintf("you may list the ResourceClaims of the namespace %q and not those of all namespaces, "+
		"so other holders are not shown, and nothing can be said about what is free.", namespace))
	return nil
}

// fallback is the namespace to look at when all of them are out of reach.
func (r reader) fallback() string {
	if r.namespace != "" {
		return r.namespace
	}
	return r.own
}

func (r reader) claimsIn(ctx context.Context, namespace string) ([]resourceapi.ResourceClaim, error) {
	claims, err := pages("", func(o metav1.ListOptions) ([]resourceapi.ResourceClaim, string, error) {
		l, err := r.client.ResourceV1().ResourceClaims(namespace).List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	return claims, nil
}

// extras reads what makes the picture richer. Without the right to read one of
// them the picture is the poorer for it and still true, so errors are dropped.
func (r reader) extras(ctx context.Context, in *picture.Input) {
	in.Classes, _ = pages("", func(o metav1.ListOptions) ([]resourceapi.DeviceClass, string, error) {
		l, err := r.client.ResourceV1().DeviceClasses().List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.Continue, nil
	})
	if len(in.Slices) > 0 {
		in.Nodes, _ = pages("", func(o metav1.ListOptions) ([]corev1.Node, string, error) {
			l, err := r.client.CoreV1().Nodes().List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return l.Items, l.Continue, nil
		})
	}
	r.rules(ctx, in)
	r.gpuNodes(ctx, in)
	namespace := metav1.NamespaceAll
	if in.Partial {
		namespace = r.fallback()
	}
	pods, err := pages("status.phase=Pending,spec.nodeName=", func(o metav1.ListOptions) ([]corev1.Pod, string, error) {
		l, err := r.client.CoreV1().Pods(namespace).List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.Continue, nil
	})
	in.PendingPods, in.PodsKnown = pods, err == nil
}

// gpuNodes reads how far nodes are with their profiles. A cluster without the
// definition has none, and a person without the right is told the same: the API
// server does not say which it is.
func (r reader) gpuNodes(ctx context.Context, in *picture.Input) {
	var err error
	if in.GPUNodes, err = listGPUNodes(ctx, r.ours); err != nil {
		in.Notes = append(in.Notes, "GPUNodes cannot be read, so profiles and switches are not shown: "+err.Error()+".")
	}
}

// listGPUNodes reads all GPUNodes; none where there is no such kind, or no right to
// read it.
func listGPUNodes(ctx context.Context, ours client.Interface) ([]v1alpha1.GPUNode, error) {
	nodes, err := pages("", func(o metav1.ListOptions) ([]v1alpha1.GPUNode, string, error) {
		l, err := ours.GPUNodes().List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.Continue, nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return nodes, err
}

// rules reads the taints that somebody put on devices from outside. Clusters that
// do not serve them have none; a person who may not read them is told, because
// a card that looks free may then be tainted.
func (r reader) rules(ctx context.Context, in *picture.Input) {
	rules, err := listRules(ctx, r.client)
	switch {
	case err == nil:
		in.Rules = rules
	case !apierrors.IsNotFound(err):
		in.Notes = append(in.Notes, "DeviceTaintRules cannot be read, so taints that they set are not shown: "+err.Error()+".")
	}
}

func listRules(ctx context.Context, c kubernetes.Interface) ([]resourceapi.DeviceTaintRule, error) {
	return pages("", func(o metav1.ListOptions) ([]resourceapi.DeviceTaintRule, string, error) {
		l, err := c.ResourceV1().DeviceTaintRules().List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.Continue, nil
	})
}

// pages lists in pages. A list that goes on for so long that the API server
// forgot where it began is asked for again, as a whole.
func pages[T any](selector string, list func(metav1.ListOptions) ([]T, string, error)) ([]T, error) {
	opts := metav1.ListOptions{FieldSelector: selector, Limit: pageSize}
	var all []T
	for {
		items, next, err := list(opts)
		if apierrors.IsResourceExpired(err) && opts.Continue != "" {
			items, _, err = list(metav1.ListOptions{FieldSelector: selector})
			return items, err
		}
		if err != nil {
			return nil, err
		}
		if all = append(all, items...); next == "" {
			return all, nil
		}
		opts.Continue = next
	}
}
