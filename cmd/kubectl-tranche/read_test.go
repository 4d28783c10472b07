package main

import (
	"errors"
	"fmt"
	"strings"
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

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
)

func slice(name, node string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: names.DriverName, NodeName: &node,
			Pool:    resourceapi.ResourcePool{Name: names.PoolName(node), ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0000-0f-00-0"}},
		},
	}
}

func claimIn(namespace, name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// forbid refuses to list a resource in the namespaces, "" being all at once.
func forbid(client *fake.Clientset, resource string, namespaces ...string) {
	clientfake.React(&client.Fake, "list", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		for _, n := range namespaces {
			if a.GetNamespace() == n {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
			}
		}
		return false, nil, nil
	})
}

func newFake() *fake.Clientset {
	c := kubefake.New(slice("a", "node-a"), claimIn("default", "one"), claimIn("team-a", "two"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})
	return c
}

// What a user may not read is missing, and told. Claims of all namespaces are read, also for the pods of
// one: otherwise a piece that another namespace holds would look free.
func TestRead(t *testing.T) {
	type fails map[string]error // of a list, by the resource
	for name, test := range map[string]struct {
		forbidden map[string][]string // the namespaces, by the resource
		fails     fails
		from      reader
		claims    int
		partial   bool
		note, err string
	}{
		"everything":           {from: reader{own: "default"}, claims: 2},
		"for one namespace":    {from: reader{namespace: "team-a"}, claims: 2},
		"claims of the own":    {forbidden: map[string][]string{"resourceclaims": {""}}, from: reader{own: "team-a"}, claims: 1, partial: true, note: "Holders in other namespaces and free capacity are not shown (you are allowed to list resourceclaims.resource.k8s.io in the namespace team-a only)."},
		"no claims":            {forbidden: map[string][]string{"resourceclaims": {"", "default"}}, from: reader{own: "default"}, partial: true, note: "Holders and free capacity are not shown (you are not allowed to list resourceclaims.resource.k8s.io)."},
		"no slices":            {forbidden: map[string][]string{"resourceslices": {""}}, err: "list ResourceSlices: resourceslices is forbidden"},
		"an old cluster":       {fails: fails{"resourceslices": apierrors.NewNotFound(schema.GroupResource{}, "")}, err: "Kubernetes 1.36 or later"},
		"not only rights":      {fails: fails{"resourceclaims": errors.New("etcd is away")}, err: "list ResourceClaims: etcd is away"},
		"no nodes and classes": {forbidden: map[string][]string{"nodes": {""}, "pods": {"", "default"}, "deviceclasses": {""}}, from: reader{own: "default"}, claims: 2, note: "Which class requests which GPUs, and what waits for them, is not known; the states of nodes are not shown; pods that wait for an extended resource are not shown (you are not allowed to list deviceclasses.resource.k8s.io, nodes, pods)."},
	} {
		t.Run(name, func(t *testing.T) {
			client := newFake()
			for resource, namespaces := range test.forbidden {
				forbid(client, resource, namespaces...)
			}
			for resource, err := range test.fails {
				clientfake.React(&client.Fake, "list", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
			}
			test.from.connection = connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}
			in, _, err := test.from.read(t.Context())
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Len(t, in.Slices, 1)
			assert.Len(t, in.Claims, test.claims)
			assert.Equal(t, test.forbidden["pods"] == nil, in.PodsKnown)
			assert.Equal(t, test.partial, in.Partial)
			if test.note == "" {
				assert.Len(t, in.Nodes, 1)
				assert.Empty(t, in.Unread)
				return
			}
			assert.Contains(t, text.Sentences(in.Unread), test.note)
		})
	}
}

func TestDeviceTaintRules(t *testing.T) {
	client := newFake()
	_, err := client.ResourceV1().DeviceTaintRules().Create(t.Context(), &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "fan"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	in, _, err := reader{connection: connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}}.read(t.Context())
	require.NoError(t, err)
	assert.Len(t, in.Rules, 1)

	forbid(client, "devicetaintrules", "")
	in, _, err = reader{connection: connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}}.read(t.Context())
	require.NoError(t, err)
	assert.Contains(t, in.Unread[0].Consequence, "the taints that DeviceTaintRules add are not shown")

	clientfake.React(&client.Fake, "list", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	in, _, err = reader{connection: connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}}.read(t.Context())
	require.NoError(t, err)
	assert.Empty(t, in.Unread, "a cluster that does not serve them has none")
}

// A cluster without GPUNodes is shown as it was before there were any.
func TestReadsGPUNodes(t *testing.T) {
	ours := clientfake.New(follows("node-a", "cpx"))
	in, _, err := reader{connection: connection{read.Clients{Kubernetes: newFake(), Ours: ours}}}.read(t.Context())
	require.NoError(t, err)
	assert.Len(t, in.GPUNodes, 1)

	var answer error
	clientfake.React(&ours.Fake, "list", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
	of := schema.GroupResource{Group: "tranche.dev", Resource: "gpunodes"}
	for note, err := range map[string]error{
		"": apierrors.NewNotFound(of, ""),
		"Profiles, switches and problems of GPUs are not shown (you are not allowed to list gpunodes.tranche.dev).": apierrors.NewForbidden(of, "", errors.New("no")),
		"Profiles, switches and problems of GPUs are not shown (away).":                                             errors.New("away"),
	} {
		answer = err
		in, _, err = reader{connection: connection{read.Clients{Kubernetes: newFake(), Ours: ours}}}.read(t.Context())
		require.NoError(t, err)
		assert.Empty(t, in.GPUNodes)
		assert.Equal(t, note, strings.Join(text.Sentences(in.Unread), "\n"))
	}
}

// A handful of nodes with labels is read one by one, and no other.
func TestSelector(t *testing.T) {
	for nodes, lists := range map[int]int{0: 0, 1: 1, handful: handful, handful + 1: 1} {
		client := newFake()
		for i := range nodes {
			labelled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("gpu-%d", i), Labels: map[string]string{"pool": "x"}}}
			_, err := client.CoreV1().Nodes().Create(t.Context(), labelled, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		in, view, err := reader{connection: connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}, selector: "pool=x"}.read(t.Context())
		require.NoError(t, err)
		assert.Len(t, view.Nodes, nodes)
		assert.NotNil(t, view.Nodes, "none is not all")
		assert.Equal(t, "pool=x", view.Selector)
		assert.Len(t, in.Nodes, nodes)
		var asked []string
		for _, a := range client.Actions() {
			if l, ok := a.(clienttesting.ListAction); ok && a.GetResource().Resource == "resourceslices" {
				asked = append(asked, l.GetListRestrictions().Fields.String())
			}
		}
		assert.Len(t, asked, lists, "%d nodes", nodes)
		if nodes == handful {
			assert.Contains(t, asked, "spec.driver=gpu.tranche.dev,spec.nodeName=gpu-4")
		}
	}
	in, view, err := reader{connection: connection{read.Clients{Kubernetes: newFake(), Ours: clientfake.New()}}, selector: "!pool", only: []string{"node-b"}}.read(t.Context())
	require.NoError(t, err)
	assert.Empty(t, view.Nodes, "nodes that were asked for, of those with the labels")
	assert.Len(t, in.Nodes, 1)

	client := newFake()
	forbid(client, "nodes", "")
	_, _, err = reader{connection: connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}, selector: "x"}.read(t.Context())
	require.ErrorContains(t, err, "list the nodes with the labels x: ")
}
