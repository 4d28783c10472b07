package clientfake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
)

func node(name string) *v1alpha1.GPUNode {
	return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestKeepsObjects(t *testing.T) {
	c := New(node("node-a"), &v1alpha1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "cpx"}})
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
	assert.Equal(t, v1alpha1.Idle, patched.Status.State)
}

func TestInformer(t *testing.T) {
	c := New(node("node-a"))
	informer := cache.NewSharedIndexInformer(client.ListWatch(c.GPUNodes(), ""), &v1alpha1.GPUNode{}, 0, nil)
	added := make(chan string, 2)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- o.(*v1alpha1.GPUNode).Name }})
	require.NoError(t, err)
	go informer.Run(t.Context().Done())
	assert.Equal(t, "node-a", <-added)
	// What comes between list and watch is lost here, so the watch must be there.
	require.Eventually(t, func() bool {
		for _, a := range c.Actions() {
			if a.GetVerb() == "watch" {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)
	_, err = c.GPUNodes().Create(t.Context(), node("node-b"), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "node-b", <-added)
}
