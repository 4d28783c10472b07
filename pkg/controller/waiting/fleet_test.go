package waiting

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/why"
)

// manyNodes answers what would take the fake API server long: it looks at every object for every list.
type manyNodes struct {
	names []string
	nodes []v1alpha1.GPUNode
	// of are the slices of node-0, and holder the claim that holds its GPU. All nodes are like it.
	of     []resourceapi.ResourceSlice
	holder resourceapi.ResourceClaim
	// free is a node whose GPU nobody holds.
	free string
}

func (f *manyNodes) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	switch o := o.(type) {
	case *v1alpha1.GPUNode:
		o.Name = key.Name
		return nil
	case *corev1.Node:
		o.Name = key.Name
		return nil
	}
	return c.Get(ctx, key, o, opts...)
}

func (f *manyNodes) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	node := ""
	if o.FieldSelector != nil && len(o.FieldSelector.Requirements()) > 0 {
		node = o.FieldSelector.Requirements()[0].Value
	}
	switch l := list.(type) {
	case *v1alpha1.GPUNodeList:
		l.Items = f.nodes
	case *corev1.NodeList:
	case *resourceapi.ResourceSliceList:
		for i := range f.of {
			s := *f.of[i].DeepCopy()
			s.Spec.NodeName, s.Spec.Pool.Name = ptr.To(node), names.PoolName(node)
			l.Items = append(l.Items, s)
		}
	case *resourceapi.ResourceClaimList:
		if node != f.free {
			held := *f.holder.DeepCopy()
			held.UID = types.UID("uid-" + node)
			held.Status.Allocation.Devices.Results[0].Pool = names.PoolName(node)
			l.Items = []resourceapi.ResourceClaim{held}
		}
	default:
		return c.List(ctx, list, opts...)
	}
	return nil
}

// Five thousand nodes are read once for all pods that ask for the same, and then only those that change.
func TestFiveThousandNodes(t *testing.T) {
	nodes := 5000
	if testing.Short() {
		nodes = 200
	}
	w := newWorld(t, 1)
	holder := w.claim("secret", "mine", wholeGPU, "node-0")
	f := &manyNodes{holder: *holder, free: "none"}
	var published resourceapi.ResourceSliceList
	require.NoError(t, w.api.List(t.Context(), &published))
	f.of = published.Items
	for i := range nodes {
		f.names = append(f.names, fmt.Sprintf("node-%d", i))
		f.nodes = append(f.nodes, v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: f.names[i]}})
	}
	inner := interceptor.Funcs{Get: f.get, List: f.list}
	w.api = interceptor.NewClient(w.api, inner)
	w.start()
	due := map[string]bool{}
	w.r.JudgeSoon = func(r reconcile.Request) {
		if !due[r.Name] {
			due[r.Name] = true
			w.due = append(w.due, r.Name)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var pods []types.NamespacedName
	for i := range 10 {
		pods = append(pods, w.waiting(fmt.Sprintf("p-%d", i), small))
	}
	w.see(pods...)
	w.pass(time.Minute)
	began := time.Now()
	w.see(pods...)
	all := time.Since(began)
	require.Len(t, w.events(), len(pods))
	assert.Equal(t, len(pods)+nodes+len(pods), w.calls, "claims, nodes and events")
	runtime.GC()
	runtime.ReadMemStats(&after)

	clear(due)
	w.calls, began = 0, time.Now()
	w.judge("node-7")
	t.Logf("%d nodes judged in %s; one node again in %s; %d kB kept", nodes, all, time.Since(began), (after.HeapAlloc-before.HeapAlloc)/1024)
	assert.Equal(t, 1, w.calls)
	require.Len(t, w.events(), len(pods))
}

// 200 shapes and 20,000 pods are remembered for 5,000 nodes in little memory, and counted quickly.
func TestManyPodsAndShapes(t *testing.T) {
	const nodes, pods, shapes = 5000, 20_000, 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m, now := newMemory(), time.Unix(1e9, 0)
	m.limits.perNamespace = shapes
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i)
	}
	m.setNodes(names, now)
	for i := range pods {
		key := types.NamespacedName{Namespace: "team-a", Name: fmt.Sprintf("training-job-%d", i)}
		claim := types.NamespacedName{Namespace: "team-a", Name: fmt.Sprintf("training-job-%d-gpu", i)}
		m.see(key, types.UID(key.Name), now)
		m.uses(key, []types.NamespacedName{claim})
		wish := &why.Wish{Key: fmt.Sprint(i % shapes), Certain: true}
		if joined, may := m.join(key, wish.Key); !joined && may {
			m.add(key, wish)
		}
	}
	for _, node := range names {
		for _, s := range m.toJudge(node) {
			m.judged(s, node, verdictOf(why.DevicesHeld, true), 0, now)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc-before.HeapAlloc) >> 20
	began := time.Now()
	byAnswer, _ := m.numbers()
	scrape := time.Since(began)
	t.Logf("%d MB kept; a scrape takes %s", kept, scrape)
	assert.Equal(t, map[why.Answer]int{why.DevicesHeld: pods}, byAnswer)
	assert.Less(t, kept, int64(100))
	if !testing.Short() {
		assert.Less(t, scrape, 100*time.Millisecond)
	}
	runtime.KeepAlive(m)
}
