package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
)

func (c connection) nodesWith(ctx context.Context, labels string) ([]corev1.Node, error) {
	all, err := read.List[corev1.Node](ctx, c, "", metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("list the nodes with the labels %s: %w", labels, err)
	}
	return all, nil
}

// mayListSlices says what to do if ResourceSlices cannot be listed.
func (c connection) mayListSlices(ctx context.Context) error {
	_, err := c.Kubernetes.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{Limit: 1})
	return slicesError(err)
}

func slicesError(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server does not serve resource.k8s.io/v1; Tranche requires Kubernetes 1.36 or later: %w", err)
	case err != nil:
		return fmt.Errorf("list ResourceSlices: %w", err)
	}
	return nil
}

// systemNamespace returns the namespace of Tranche: the one that the user names, or that of the chart's classes.
// A pod of another namespace could pretend to be Tranche's.
func (c connection) systemNamespace(ctx context.Context, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	classes, err := read.All[resourceapi.DeviceClass](ctx, c, "")
	if namespace := cluster.SystemNamespace(classes); namespace != "" {
		return namespace, nil
	}
	reason := "no DeviceClass names it"
	if err != nil {
		reason = read.Reason("list", err)
	}
	return "", fmt.Errorf("the namespace of Tranche is not known (%s): name it with --system-namespace", reason)
}

func (c connection) listProfiles(ctx context.Context) ([]v1beta1.PartitionProfile, error) {
	profiles, err := read.All[v1beta1.PartitionProfile](ctx, c, "")
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server does not serve PartitionProfiles: install the chart with its CustomResourceDefinitions: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list PartitionProfiles: %w", err)
	}
	return profiles, nil
}
