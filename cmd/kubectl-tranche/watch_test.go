package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/terminal"
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
	r := &showRun{options: &options{config: genericclioptions.NewConfigFlags(true)}, out: out}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- r.watch(ctx, connection{kubernetes, ours}, from) }()
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

// What the user is not allowed to read is told as without --watch, and not asked for again.
func TestWatchWithoutRights(t *testing.T) {
	client := newFake()
	forbid(client, "resourceclaims", "")
	forbid(client, "nodes", "")
	out, end := startWatching(t, client, clientfake.New(), reader{own: "team-a"})
	out.waitFor(t, `Note: you are allowed to list ResourceClaims in the namespace "team-a" only.`)
	_, err := client.ResourceV1().ResourceSlices().Create(t.Context(), slice("b", "node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	out.waitFor(t, "node-b: publishes 1 GPU")
	require.NoError(t, end())
	assert.Equal(t, 2, strings.Count(out.String(), "Note: "), "of the claims and the nodes")
	lists := 0
	for _, a := range client.Actions() {
		if a.GetResource().Resource == "nodes" {
			lists++
		}
	}
	assert.Equal(t, 1, lists)

	forbid(client, "resourceslices", "")
	r := &showRun{options: &options{}, out: out}
	require.ErrorContains(t, r.watch(t.Context(), connection{client, clientfake.New()}, reader{}), "you are not allowed to list ResourceSlices")
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

// A terminal has the picture, with what keeps it from being new.
func TestTellOnATerminal(t *testing.T) {
	var out bytes.Buffer
	w := newWatched(connection{})
	assert.Empty(t, w.notes())
	w.wrong(errors.New("connection refused"))
	assert.True(t, w.wait(t.Context(), 0))
	s := &cluster.Summary{Nodes: []cluster.Node{}, Notes: w.notes()}
	live := terminal.Live{Out: &out}
	r := &showRun{options: &options{config: genericclioptions.NewConfigFlags(true)}, out: &out}
	require.NoError(t, r.tellOn(terminal.Screen{Width: 80, Live: true}, &live, nil, s))
	assert.Contains(t, out.String(), "No node publishes GPUs yet.")
	assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), "Note: This may be old, because the API server cannot be watched: connection refused.")
	require.NoError(t, r.tellOn(terminal.Screen{Width: 80, Live: true}, &live, s, s))
	assert.Contains(t, out.String(), "\x1b[J")
	w.lost = w.lost.Add(-2 * stale)
	assert.Empty(t, w.notes(), "it was long ago")
}

// A failure that passes is tried again.
func TestWatchedTriesAgain(t *testing.T) {
	client := newFake()
	fails := true
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, errors.New("away")
	})
	w := newWatched(connection{client, clientfake.New()})
	_, err := w.nodes(t.Context(), "")
	require.ErrorContains(t, err, "away")
	fails = false
	nodes, err := w.nodes(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, nodes, 1)
}
