package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/pkg/client/clientfake"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

func slice(name, node string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: gpu.DriverName, NodeName: &node,
			Pool:    resourceapi.ResourcePool{Name: node + "/gpu-0000-0f-00-0", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0000-0f-00-0"}},
		},
	}
}

func claimIn(namespace, name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// forbid refuses to list a resource in the namespaces, "" being all at once.
func forbid(client *fake.Clientset, resource string, namespaces ...string) {
	client.PrependReactor("list", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		for _, n := range namespaces {
			if a.GetNamespace() == n {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
			}
		}
		return false, nil, nil
	})
}

func newFake() *fake.Clientset {
	return fake.NewClientset(slice("a", "node-a"), claimIn("default", "one"), claimIn("team-a", "two"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})
}

func TestReadsAllNamespaces(t *testing.T) {
	in, err := reader{client: newFake(), ours: clientfake.New(), own: "default"}.read(context.Background())
	require.NoError(t, err)
	assert.Len(t, in.Slices, 1)
	assert.Len(t, in.Claims, 2)
	assert.Len(t, in.Nodes, 1)
	assert.True(t, in.PodsKnown)
	assert.False(t, in.Partial)
	assert.Empty(t, in.Notes)
}

// Otherwise a piece that another namespace holds would look free.
func TestReadsAllNamespacesEvenForOne(t *testing.T) {
	in, err := reader{client: newFake(), ours: clientfake.New(), namespace: "team-a"}.read(context.Background())
	require.NoError(t, err)
	assert.Len(t, in.Claims, 2)
	assert.Equal(t, "team-a", in.Namespace)
}

func TestWithoutClusterWideRightTheOwnNamespaceIsShown(t *testing.T) {
	client := newFake()
	forbid(client, "resourceclaims", "")
	in, err := reader{client: client, ours: clientfake.New(), own: "team-a"}.read(context.Background())
	require.NoError(t, err)
	assert.True(t, in.Partial)
	require.Len(t, in.Claims, 1)
	assert.Equal(t, "two", in.Claims[0].Name)
	assert.Contains(t, in.Notes[0], `of the namespace "team-a" and not those of all namespaces`)
}

func TestWithoutAnyRightToClaimsThePictureHasNoHolders(t *testing.T) {
	client := newFake()
	forbid(client, "resourceclaims", "", "default")
	in, err := reader{client: client, ours: clientfake.New(), own: "default"}.read(context.Background())
	require.NoError(t, err)
	assert.True(t, in.Partial)
	assert.Empty(t, in.Claims)
	assert.Len(t, in.Slices, 1)
	assert.Contains(t, in.Notes[0], "no holders are shown")
}

func TestExtrasAreOptional(t *testing.T) {
	client := newFake()
	for _, resource := range []string{"nodes", "pods", "deviceclasses"} {
		forbid(client, resource, "", "default")
	}
	in, err := reader{client: client, ours: clientfake.New(), own: "default"}.read(context.Background())
	require.NoError(t, err)
	assert.False(t, in.PodsKnown)
	assert.Len(t, in.Claims, 2)
}

func TestDeviceTaintRules(t *testing.T) {
	client := newFake()
	_, err := client.ResourceV1().DeviceTaintRules().Create(t.Context(), &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "fan"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	in, err := reader{client: client, ours: clientfake.New()}.read(t.Context())
	require.NoError(t, err)
	assert.Len(t, in.Rules, 1)

	forbid(client, "devicetaintrules", "")
	in, err = reader{client: client, ours: clientfake.New()}.read(t.Context())
	require.NoError(t, err)
	assert.Contains(t, in.Notes[0], "taints that they set are not shown")

	client.PrependReactor("list", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	in, err = reader{client: client, ours: clientfake.New()}.read(t.Context())
	require.NoError(t, err)
	assert.Empty(t, in.Notes, "a cluster that does not serve them has none")
}

func TestWithoutRightToSlicesTheErrorSaysWhatToAskFor(t *testing.T) {
	client := newFake()
	forbid(client, "resourceslices", "")
	_, err := reader{client: client, ours: clientfake.New()}.read(context.Background())
	require.ErrorContains(t, err, "ask for a ClusterRole with get and list on resourceslices.resource.k8s.io")
}

func TestAnOldClusterIsNamed(t *testing.T) {
	client := newFake()
	client.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	_, err := reader{client: client, ours: clientfake.New()}.read(context.Background())
	require.ErrorContains(t, err, "Kubernetes 1.36 or later")
}

func TestAnErrorOtherThanForbiddenIsOne(t *testing.T) {
	client := newFake()
	client.PrependReactor("list", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("etcd is away")
	})
	_, err := reader{client: client, ours: clientfake.New()}.read(context.Background())
	require.EqualError(t, err, "list ResourceClaims: etcd is away")
}

func TestPages(t *testing.T) {
	list := func(o metav1.ListOptions) ([]int, string, error) {
		assert.Equal(t, "x=y", o.FieldSelector)
		assert.EqualValues(t, pageSize, o.Limit)
		if o.Continue == "" {
			return []int{1, 2}, "more", nil
		}
		return []int{3}, "", nil
	}
	got, err := pages("x=y", list)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2, 3}, got)
}

func TestPagesStartsAgainWhenThePlaceIsForgotten(t *testing.T) {
	list := func(o metav1.ListOptions) ([]int, string, error) {
		switch {
		case o.Continue != "":
			return nil, "", apierrors.NewResourceExpired("too old")
		case o.Limit == 0:
			return []int{1, 2, 3}, "", nil
		}
		return []int{1, 2}, "more", nil
	}
	got, err := pages("", list)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2, 3}, got)

	_, err = pages("", func(metav1.ListOptions) ([]int, string, error) { return nil, "", fmt.Errorf("away") })
	require.Error(t, err)
}

// A cluster without GPUNodes, or without the right to see them, is shown as it was
// before there were any.
func TestReadsGPUNodes(t *testing.T) {
	ours := clientfake.New(follows("node-a", "cpx"))
	in, err := reader{client: newFake(), ours: ours}.read(t.Context())
	require.NoError(t, err)
	assert.Len(t, in.GPUNodes, 1)

	var answer error
	ours.PrependReactor("list", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
	for _, answer = range []error{
		apierrors.NewNotFound(schema.GroupResource{Resource: "gpunodes"}, ""),
		apierrors.NewForbidden(schema.GroupResource{Resource: "gpunodes"}, "", errors.New("no")),
	} {
		in, err = reader{client: newFake(), ours: ours}.read(t.Context())
		require.NoError(t, err)
		assert.Empty(t, in.GPUNodes)
		assert.Empty(t, in.Notes)
	}
	answer = errors.New("away")
	in, err = reader{client: newFake(), ours: ours}.read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"GPUNodes cannot be read, so profiles and switches are not shown: away."}, in.Notes)
}
