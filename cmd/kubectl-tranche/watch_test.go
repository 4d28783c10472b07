package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/clientfake"
)

// written is what a command writes while the test looks on.
type written struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

func (w *written) waitFor(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(w.String(), text) }, time.Minute, 5*time.Millisecond, "%s", text)
}

// startWatching shows changes until the test ends, or the returned function is called.
func startWatching(t *testing.T, kubernetes *fake.Clientset, ours *clientfake.Client, from reader) (*written, func() error) {
	out := &written{}
	r := &showRun{session: newSession(out, picture.Screen{Width: 100}, connection{})}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	from.connection = connection{read.Clients{Kubernetes: kubernetes, Ours: ours}}
	go func() { done <- r.watch(ctx, from) }()
	return out, func() error {
		cancel()
		return <-done
	}
}

// watchesOf waits until a kind is watched: the fake sends nothing of before.
func watchesOf(t *testing.T, actions func() []clienttesting.Action, resource string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, a := range actions() {
			if a.GetVerb() == "watch" && a.GetResource().Resource == resource {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)
}

func TestWatchWritesALineForEachChange(t *testing.T) {
	client, ours := newFake(), clientfake.New(follows("node-a", "cpx"))
	out, end := startWatching(t, client, ours, reader{own: "default"})
	out.waitFor(t, "1 node, 1 GPU, 1 Ready, 0 claims wait\n")
	for _, kind := range []string{"resourceslices", "nodes", "resourceclaims", "pods", "devicetaintrules", "deviceclasses"} {
		watchesOf(t, client.Actions, kind)
	}
	_, err := client.ResourceV1().ResourceSlices().Create(t.Context(), slice("b", "node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	out.waitFor(t, " node-b: publishes 1 GPU\n")
	cordoned := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	_, err = client.CoreV1().Nodes().Update(t.Context(), cordoned, metav1.UpdateOptions{})
	require.NoError(t, err)
	out.waitFor(t, " node-a: cordoned\n")
	require.NoError(t, client.ResourceV1().ResourceSlices().Delete(t.Context(), "b", metav1.DeleteOptions{}))
	out.waitFor(t, " node-b: publishes no GPUs any more\n")
	watchesOf(t, ours.Actions, "gpunodes")
	_, err = ours.GPUNodes().Update(t.Context(), follows("node-a", "spx"), metav1.UpdateOptions{})
	require.NoError(t, err)
	out.waitFor(t, " node-a: profile spx\n")
	require.NoError(t, end(), "the user ends it")
	for _, a := range client.Actions() {
		assert.Contains(t, []string{"list", "watch", "create", "update", "delete"}, a.GetVerb())
	}
}

// What the user is not allowed to read is told as without --watch.
func TestWatchWithoutRights(t *testing.T) {
	client := newFake()
	forbid(client, "resourceclaims", "")
	forbid(client, "nodes", "")
	out, end := startWatching(t, client, clientfake.New(), reader{own: "team-a"})
	out.waitFor(t, "you are allowed to list resourceclaims.resource.k8s.io in the namespace team-a only")
	_, err := client.ResourceV1().ResourceSlices().Create(t.Context(), slice("b", "node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	out.waitFor(t, "node-b: publishes 1 GPU")
	require.NoError(t, end())
	assert.Equal(t, 2, strings.Count(out.String(), "Note: "), "of the claims and the nodes")

	forbid(client, "resourceslices", "")
	r := &showRun{session: newSession(out, picture.Screen{Width: 100}, connection{})}
	require.ErrorContains(t, r.watch(t.Context(), reader{connection: connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}}), "list ResourceSlices: resourceslices is forbidden")
}

func TestWatchOfNodesWithLabels(t *testing.T) {
	client := newFake()
	out, end := startWatching(t, client, clientfake.New(), reader{selector: "pool=x"})
	out.waitFor(t, "0 nodes, 0 GPUs, 0 claims wait\n")
	watchesOf(t, client.Actions, "nodes")
	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b", Labels: map[string]string{"pool": "x"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	watchesOf(t, client.Actions, "resourceslices")
	_, err = client.ResourceV1().ResourceSlices().Create(t.Context(), slice("b", "node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	out.waitFor(t, " node-b: publishes 1 GPU\n")
	require.NoError(t, end())
}

// One node that was asked for is the only one that is read, and holders of other namespaces have no names.
func TestWatchOfOneNode(t *testing.T) {
	client := newFake()
	out, end := startWatching(t, client, clientfake.New(), reader{only: []string{"node-a"}, namespace: "team-a"})
	out.waitFor(t, "1 node, 1 GPU, 1 Ready, 0 claims wait\n")
	watchesOf(t, client.Actions, "resourceclaims")
	_, err := client.ResourceV1().ResourceClaims("team-b").Create(t.Context(), holding("team-b", "three", "node-a"), metav1.CreateOptions{})
	require.NoError(t, err)
	out.waitFor(t, "by another namespace\n")
	require.NoError(t, end())
	for _, a := range client.Actions() {
		if l, ok := a.(clienttesting.ListActionImpl); ok && a.GetResource().Resource == "resourceslices" && l.ListOptions.Limit != 1 {
			assert.Equal(t, "spec.driver=gpu.tranche.dev,spec.nodeName=node-a", l.GetListRestrictions().Fields.String())
		}
	}
}

// holding is a claim that holds the GPU of a node.
func holding(namespace, name, node string) *resourceapi.ResourceClaim {
	c := claimIn(namespace, name)
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: names.DriverName, Pool: node, Device: "gpu-0000-0f-00-0"},
	}}}
	return c
}

// A terminal has the picture, with what keeps it from being new.
func TestTellOnATerminal(t *testing.T) {
	var out bytes.Buffer
	s := &cluster.Summary{Nodes: []cluster.Node{}, Unread: []text.Unread{{Resource: "nodes", Message: "connection refused", Consequence: "what is shown of nodes may be outdated"}}}
	live := picture.Live{Out: &out}
	r := &showRun{session: newSession(&out, picture.Screen{Width: 80, Live: true}, connection{})}
	require.NoError(t, r.tell(&live, nil, s))
	assert.Contains(t, out.String(), "No node publishes GPUs yet.")
	assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), "Note: What is shown of nodes may be outdated (connection refused).")
	require.NoError(t, r.tell(&live, s, s))
	assert.Contains(t, out.String(), "\x1b[J")
}
