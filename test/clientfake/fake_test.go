package clientfake

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
)

func node(name string) *v1beta1.GPUNode {
	return &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestKeepsObjects(t *testing.T) {
	c := New(node("node-a"), &v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "cpx"}})
	_, err := c.GPUNodes().Create(t.Context(), node("node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	nodes, err := c.GPUNodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, nodes.Items, 2)
	_, err = c.PartitionProfiles().Get(t.Context(), "cpx", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = c.PartitionProfiles().Get(t.Context(), "spx", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)

	_, err = c.GPUNodes().Patch(t.Context(), "node-a", types.MergePatchType, []byte(`{"status":{"state":"Idle"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	patched, err := c.GPUNodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, v1beta1.Idle, patched.Status.State)
}

func TestInformer(t *testing.T) {
	c := New(node("node-a"))
	informer := cache.NewSharedIndexInformer(client.ListWatch(c.GPUNodes(), ""), &v1beta1.GPUNode{}, 0, nil)
	added := make(chan string, 2)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- o.(*v1beta1.GPUNode).Name }})
	require.NoError(t, err)
	go informer.Run(t.Context().Done())
	assert.Equal(t, "node-a", <-added)
	_, err = c.GPUNodes().Create(t.Context(), node("node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "node-b", <-added)
}

// An informer may change what it gets, of an object that was created between its list and its
// watch, too.
func TestWatchSendsCopies(t *testing.T) {
	c := New()
	before, err := c.GPUNodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, err = c.GPUNodes().Create(t.Context(), node("node-a"), metav1.CreateOptions{})
	require.NoError(t, err)
	w, err := c.GPUNodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	require.NoError(t, err)
	defer w.Stop()
	got := (<-w.ResultChan()).Object.(*v1beta1.GPUNode)
	assert.Equal(t, "node-a", got.Name)
	got.Labels = map[string]string{"changed": ""}
	kept, err := c.GPUNodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, kept.Labels)
}

// An informer learns what was deleted between its list and its watch.
func TestWatchSendsDeletions(t *testing.T) {
	c := New(node("node-a"), node("node-b"), node("node-c"))
	remove := func(name string) { require.NoError(t, c.GPUNodes().Delete(t.Context(), name, metav1.DeleteOptions{})) }
	remove("node-a")
	before, err := c.GPUNodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	remove("node-b")
	_, err = c.GPUNodes().Create(t.Context(), node("node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	w, err := c.GPUNodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	require.NoError(t, err)
	defer w.Stop()
	remove("node-c")
	for _, want := range []struct {
		kind watch.EventType
		name string
	}{{watch.Deleted, "node-b"}, {watch.Added, "node-b"}, {watch.Deleted, "node-c"}} {
		got := <-w.ResultChan()
		assert.Equal(t, want.kind, got.Type)
		assert.Equal(t, want.name, got.Object.(*v1beta1.GPUNode).Name)
	}
}
