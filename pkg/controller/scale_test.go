package controller

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/short"
)

// fleet runs many nodes as the manager would: each when its time has come, or when
// its GPUNode has changed, several side by side.
type fleet struct {
	*world
	// mu guards due.
	mu  sync.Mutex
	due map[string]time.Time
}

func (f *fleet) wakeNow(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due[node] = f.clock.Now()
}

// next are the nodes whose time has come.
func (f *fleet) next() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for node, at := range f.due {
		if !f.clock.Now().Before(at) {
			all = append(all, node)
			delete(f.due, node)
		}
	}
	return all
}

// lists answers what would take the fake API server long: it looks at every object for
// every list.
func (f *fleet) lists(list client.ObjectList, o *client.ListOptions) bool {
	switch l := list.(type) {
	case *corev1.PodList, *resourceapi.ResourceClaimList:
		return true
	case *resourceapi.ResourceSliceList:
		name, _ := o.FieldSelector.RequiresExactMatch(resourceapi.ResourceSliceSelectorNodeName)
		n := f.nodes[name]
		for _, gpuID := range n.gpus {
			s := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
				Driver: names.DriverName, NodeName: ptr.To(name), Devices: n.devices(nil, gpuID),
				Pool: resourceapi.ResourcePool{Name: names.PoolName(name), Generation: 1, ResourceSliceCount: int64(len(n.gpus))},
			}}
			l.Items = append(l.Items, s)
		}
		return true
	}
	return false
}

func TestAThousandNodesAreSwitchedATenthAtATime(t *testing.T) {
	nodes := short.Of(100, 1000)
	w := newWorld(t, func(w *world) { w.opts.MaxUnavailable = "10%" })
	f := &fleet{world: w, due: map[string]time.Time{}}
	w.wake, w.list, w.byHand = f.wakeNow, f.lists, true
	w.profile("cpx")
	nothing := profile.Snapshot("", nil)
	nothing.Source = v1beta1.FromNone
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		n := &fakeNode{name: name, gpus: []string{gpuA}, applied: nothing.Hash, quick: true}
		n.changes = func(*v1beta1.Switch) []v1beta1.GPUChange { return []v1beta1.GPUChange{{GPU: gpuA}} }
		w.nodes[name] = n
		g := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		g.Status.State, g.Status.Applied = v1beta1.Idle, nothing.DeepCopy()
		g.Status.Node = n.report(w)
		require.NoError(t, w.api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "node", Labels: map[string]string{names.LabelProfile: "cpx"},
		}}))
		status := g.Status
		require.NoError(t, w.api.Create(t.Context(), g))
		g.Status = status
		require.NoError(t, w.api.Status().Update(t.Context(), g))
		f.due[name] = w.clock.Now()
	}

	start, rounds := w.clock.Now(), 0
	for len(f.due) > 0 {
		all := f.next()
		rounds += len(all)
		var wg sync.WaitGroup
		work := make(chan string)
		for range 8 {
			wg.Go(func() {
				for node := range work {
					if wait := f.round(node); wait > 0 {
						f.mu.Lock()
						f.due[node] = f.clock.Now().Add(wait)
						f.mu.Unlock()
					}
					if f.nodes[node].changed {
						f.wakeNow(node)
					}
				}
			})
		}
		for _, node := range all {
			work <- node
		}
		close(work)
		wg.Wait()
		w.decide("")
		w.clock.Step(500 * time.Millisecond)
		require.Less(t, w.clock.Now().Sub(start), 10*time.Minute)
	}
	assert.LessOrEqual(t, w.budgetSeen, nodes/10, "the budget was exceeded")
	assert.Equal(t, nodes/10, w.budgetSeen, "the budget was not used")
	assert.Zero(t, w.moving())
	var gpuNodes v1beta1.GPUNodeList
	require.NoError(t, w.api.List(t.Context(), &gpuNodes))
	for i := range gpuNodes.Items {
		require.True(t, inProfile("cpx")(&gpuNodes.Items[i]), gpuNodes.Items[i].Name)
	}
	t.Logf("%d nodes in %s, %d rounds, writes %v", nodes, w.clock.Now().Sub(start), rounds, w.writes)
}
