package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// list returns all objects of a kind, read in pages, as a typed client's List returns
// them. No objects are an empty list, an unreadable kind is nil.
func list[T any, L runtime.Object](ctx context.Context, selector string, page func(context.Context, metav1.ListOptions) (L, error)) ([]T, error) {
	return listWith[T](ctx, metav1.ListOptions{FieldSelector: selector}, page)
}

func listWith[T any, L runtime.Object](ctx context.Context, options metav1.ListOptions, page func(context.Context, metav1.ListOptions) (L, error)) ([]T, error) {
	progress, read := progressOf(ctx), 0
	defer progress.Done()
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", *new(T)), ".")
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		part, err := page(ctx, o)
		if err == nil {
			read += meta.LenList(part)
			progress.Say("Reading objects of the kind %s: %d so far.", kind, read)
		}
		return part, err
	})
	found, _, err := pages.List(ctx, options)
	if err != nil {
		return nil, err
	}
	all := []T{}
	err = meta.EachListItem(found, func(o runtime.Object) error {
		item, ok := any(o).(*T)
		if !ok {
			return fmt.Errorf("the list has a %T", o)
		}
		all = append(all, *item)
		return nil
	})
	return all, err
}

func (c connection) listClaims(ctx context.Context, namespace string) ([]resourceapi.ResourceClaim, error) {
	return list[resourceapi.ResourceClaim](ctx, "", c.kubernetes.ResourceV1().ResourceClaims(namespace).List)
}

func (c connection) listClasses(ctx context.Context) ([]resourceapi.DeviceClass, error) {
	return list[resourceapi.DeviceClass](ctx, "", c.kubernetes.ResourceV1().DeviceClasses().List)
}

func (c connection) listSlices(ctx context.Context, selector string) ([]resourceapi.ResourceSlice, error) {
	return list[resourceapi.ResourceSlice](ctx, selector, c.kubernetes.ResourceV1().ResourceSlices().List)
}

func (c connection) listNodes(ctx context.Context) ([]corev1.Node, error) {
	return list[corev1.Node](ctx, "", c.kubernetes.CoreV1().Nodes().List)
}

func (c connection) nodes(ctx context.Context, labels string) ([]corev1.Node, error) {
	return listWith[corev1.Node](ctx, metav1.ListOptions{LabelSelector: labels}, c.kubernetes.CoreV1().Nodes().List)
}

func (c connection) listPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, selector, c.kubernetes.CoreV1().Pods(namespace).List)
}

// listRules lists the DeviceTaintRules. A cluster that does not serve them has none.
func (c connection) listRules(ctx context.Context) ([]resourceapi.DeviceTaintRule, error) {
	return unlessMissing(list[resourceapi.DeviceTaintRule](ctx, "", c.kubernetes.ResourceV1().DeviceTaintRules().List))
}

// unlessMissing has no objects if the API server does not serve the kind.
func unlessMissing[T any](all []T, err error) ([]T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return all, err
}

// unlessHidden has no objects if the user is not allowed to read them, or there is no such kind.
func unlessHidden[T any](all []T, err error) ([]T, error) {
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return unlessMissing(all, err)
}

// listGPUNodes lists the GPUNodes; none if the kind does not exist, or if the user is not
// allowed to read it.
func (c connection) listGPUNodes(ctx context.Context) ([]v1alpha1.GPUNode, error) {
	return unlessHidden(list[v1alpha1.GPUNode](ctx, "", c.ours.GPUNodes().List))
}

// systemNamespace is the namespace of Tranche: the one that the user names, or that of the chart's classes.
// A pod of another namespace could pretend to be Tranche's.
func (c connection) systemNamespace(ctx context.Context, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	classes, err := c.listClasses(ctx)
	if namespace := cluster.SystemNamespace(classes); namespace != "" {
		return namespace, nil
	}
	reason := "no DeviceClass names it"
	if err != nil {
		reason = unreadable(err)
	}
	return "", fmt.Errorf("the namespace of Tranche is not known (%s): name it with --system-namespace", reason)
}

// listProfiles lists the PartitionProfiles.
func (c connection) listProfiles(ctx context.Context) ([]v1alpha1.PartitionProfile, error) {
	profiles, err := list[v1alpha1.PartitionProfile](ctx, "", c.ours.PartitionProfiles().List)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server does not serve PartitionProfiles: install the chart with its CustomResourceDefinitions: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list PartitionProfiles: %w", err)
	}
	return profiles, nil
}
