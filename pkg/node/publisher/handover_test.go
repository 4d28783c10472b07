package publisher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// handing is a handover to the real resourceslice controller, which the helper publishes
// with.
type handing struct {
	*handover
	t   *testing.T
	api *fake.Clientset
	// mu protects incomplete, which is set when the pool was seen incomplete after its
	// first publication.
	mu         sync.Mutex
	watch      bool
	incomplete bool
}

func newHanding(t *testing.T) *handing {
	t.Helper()
	h := &handing{t: t, api: nodetest.NewAPI()}
	var controller *resourceslice.Controller
	h.handover = &handover{node: nodetest.NodeName, patience: time.Minute, failed: func(_ context.Context, err error) { assert.NoError(t, err) }}
	h.send = func(_ context.Context, r resourceslice.DriverResources) error {
		if controller != nil {
			controller.Update(&r)
			return nil
		}
		var err error
		controller, err = resourceslice.StartController(t.Context(), resourceslice.Options{
			DriverName: names.DriverName, KubeClient: observed{h.api, h.observe}, Resources: &r,
			Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: nodetest.NodeName, UID: "node-uid"},
		})
		if err == nil {
			t.Cleanup(controller.Stop)
		}
		return err
	}
	t.Cleanup(h.Stop)
	return h
}

// observe looks at the pool after each write, as a scheduler would see it.
func (h *handing) observe(ctx context.Context, s *resourceapi.ResourceSlice) {
	h.mu.Lock()
	if h.watch && publish.DigestsOf(nodetest.NodeName, h.slices()) == nil {
		h.incomplete = true
	}
	h.mu.Unlock()
	h.stored(ctx, s)
}

func (h *handing) slices() []resourceapi.ResourceSlice {
	list, err := h.api.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{})
	assert.NoError(h.t, err)
	return list.Items
}

// costs hands GPUs over, waits until the API server has them, and says how many writes
// it took and whether the pool was incomplete meanwhile.
func (h *handing) costs(gpus []publish.GPU) (int, bool) {
	h.t.Helper()
	published, errs := publish.Slices(gpus)
	require.Empty(h.t, errs)
	before := nodetest.SliceWrites(h.api)
	require.NoError(h.t, h.setTarget(h.t.Context(), published))
	want := publish.DigestsOfSlices(published)
	require.Eventually(h.t, func() bool {
		slices := h.slices()
		if len(gpus) == 0 {
			return len(slices) == 0 // an incomplete pool has no digests, either
		}
		return assert.ObjectsAreEqual(want, publish.DigestsOf(nodetest.NodeName, slices))
	}, time.Minute, 5*time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	incomplete := h.incomplete
	h.incomplete = false
	return nodetest.SliceWrites(h.api) - before, incomplete
}

func (h *handing) observeCompleteness() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch = true
}

// What a change costs the API server: one write for each GPU that changes, and the pool is
// complete all the time. Only a change of counters, or of the number of GPUs, writes all
// slices.
func TestWritesOfAHandover(t *testing.T) {
	h := newHanding(t)
	gpus := make([]publish.GPU, 8)
	for i := range gpus {
		gpus[i].GPU = nodetest.GPUAt(fmt.Sprintf("0000:%02x:00.0", i+1))
	}
	writes, _ := h.costs(gpus)
	assert.EqualValues(t, 9, writes, "the first publication")
	h.observeCompleteness()

	tainted := func(n int) {
		for i := range gpus[:n] {
			gpus[i].Taints = append(gpus[i].Taints, resourceapi.DeviceTaint{Key: names.TaintSwitching, Value: fmt.Sprint(len(gpus[i].Taints)), Effect: resourceapi.DeviceTaintEffectNoSchedule})
		}
	}
	for _, n := range []int{0, 1, 2, 8} {
		tainted(n)
		writes, incomplete := h.costs(gpus)
		assert.EqualValues(t, n, writes, "%d GPUs change", n)
		assert.False(t, incomplete, "%d GPUs change", n)
	}

	// The offer of a GPU and its taints are one write.
	gpus[3].Placements = gpus[3].Placements[1:]
	gpus[3].Taints = nil
	writes, incomplete := h.costs(gpus)
	assert.EqualValues(t, 1, writes)
	assert.False(t, incomplete)

	gpus[5].Counters = gpu.Counters{"memory": 90}
	gpus[5].Placements = gpus[5].Placements[1:]
	writes, incomplete = h.costs(gpus)
	assert.EqualValues(t, 9, writes, "counters and devices of one GPU")
	assert.True(t, incomplete)

	more := nodetest.GPUAt("0000:0a:00.0")
	writes, _ = h.costs(append(gpus, publish.GPU{GPU: more}))
	assert.EqualValues(t, 11, writes, "a ninth GPU")
	writes, _ = h.costs(nil)
	assert.EqualValues(t, 11, writes, "all slices are deleted")
}

// publish.Objects is what the resourceslice controller writes, except for what only the API server
// knows.
func TestObjectsOfAHandover(t *testing.T) {
	h := newHanding(t)
	gpus := []publish.GPU{{GPU: nodetest.GPUAt("0000:01:00.0")}, {GPU: nodetest.GPUAt("0000:02:00.0")}}
	h.costs(gpus)
	published, errs := publish.Slices(gpus)
	require.Empty(t, errs)
	want := publish.Objects(names.DriverName, nodetest.NodeName, published)
	for i, stored := range h.slices() {
		require.Len(t, stored.OwnerReferences, 1)
		stored.OwnerReferences[0].UID = ""
		assert.Equal(t, want[i].GenerateName, stored.GenerateName)
		assert.Contains(t, want[i].Name, want[i].GenerateName)
		assert.Equal(t, want[i].OwnerReferences, stored.OwnerReferences)
		assert.True(t, equality.Semantic.DeepEqual(want[i].Spec, stored.Spec), "slice %d: want %v, stored %v", i, want[i].Spec, stored.Spec)
		assert.Equal(t, metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}, want[i].TypeMeta)
	}
	assert.Len(t, h.slices(), len(want))
}

// A target that changes while slices are handed over is reached, without steps that it has
// no use for.
func TestHandoverFollowsTheTarget(t *testing.T) {
	var sent []resourceslice.DriverResources
	h := &handover{node: nodetest.NodeName, patience: time.Minute, send: func(_ context.Context, r resourceslice.DriverResources) error {
		sent = append(sent, r)
		return nil
	}}
	target := func(taints ...string) []publish.Slice {
		var gpus []publish.GPU
		for i, value := range taints {
			g := publish.GPU{GPU: nodetest.GPUAt(fmt.Sprintf("0000:%02x:00.0", i+1))}
			g.Taints = []resourceapi.DeviceTaint{{Key: "k", Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			gpus = append(gpus, g)
		}
		r, errs := publish.Slices(gpus)
		require.Empty(t, errs)
		return r
	}
	state := func() (taints string) {
		for _, s := range sent[len(sent)-1].Pools[nodetest.NodeName].Slices[1:] {
			taints += s.Devices[0].Taints[0].Value
		}
		return taints
	}
	storedNow := func(i int) {
		h.stored(t.Context(), &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: sent[len(sent)-1].Pools[nodetest.NodeName].Slices[i].Devices}})
	}
	require.NoError(t, h.setTarget(t.Context(), target("a", "a", "a")))
	assert.Equal(t, "aaa", state(), "all at once at first")
	require.NoError(t, h.setTarget(t.Context(), target("b", "b", "a")))
	assert.Equal(t, "baa", state())
	require.NoError(t, h.setTarget(t.Context(), target("b", "a", "c")))
	assert.Equal(t, "baa", state(), "one slice at a time")
	storedNow(3)
	assert.Equal(t, "baa", state(), "another slice was stored")
	storedNow(1)
	assert.Equal(t, "bac", state())
	storedNow(3)
	assert.Equal(t, "bac", state())
	assert.Len(t, sent, 3)
}

// A slice that is never stored does not hold up the others for long.
func TestHandoverLosesPatience(t *testing.T) {
	var mu sync.Mutex
	var last resourceslice.DriverResources
	h := &handover{node: nodetest.NodeName, patience: time.Millisecond, send: func(_ context.Context, r resourceslice.DriverResources) error {
		mu.Lock()
		defer mu.Unlock()
		last = r
		return nil
	}}
	gpus := []publish.GPU{{GPU: nodetest.GPUAt("0000:01:00.0")}, {GPU: nodetest.GPUAt("0000:02:00.0")}}
	first, _ := publish.Slices(gpus)
	require.NoError(t, h.setTarget(t.Context(), first))
	for i := range gpus {
		gpus[i].Withheld = true
	}
	second, _ := publish.Slices(gpus)
	require.NoError(t, h.setTarget(t.Context(), second))
	assert.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(last.Pools[nodetest.NodeName].Slices[2].Devices) == 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, h.setTarget(t.Context(), first))
	mu.Lock()
	assert.NotEmpty(t, last.Pools[nodetest.NodeName].Slices[1].Devices, "nothing is awaited any more")
	mu.Unlock()
	h.Stop()
}

// What fails while nobody waits for it is reported. After a stop, nothing is sent.
func TestHandoverFailsInTheBackground(t *testing.T) {
	var failures []error
	var answer error
	h := &handover{node: nodetest.NodeName, patience: time.Minute, failed: func(_ context.Context, err error) { failures = append(failures, err) }, send: func(context.Context, resourceslice.DriverResources) error {
		return answer
	}}
	gpus := []publish.GPU{{GPU: nodetest.GPUAt("0000:01:00.0")}, {GPU: nodetest.GPUAt("0000:02:00.0")}}
	for _, withheld := range []bool{false, true} {
		gpus[0].Withheld, gpus[1].Withheld = withheld, withheld
		target, errs := publish.Slices(gpus)
		require.Empty(t, errs)
		require.NoError(t, h.setTarget(t.Context(), target))
	}
	answer = assert.AnError
	h.stored(t.Context(), &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: h.handed[1].Devices}})
	assert.Len(t, failures, 1)
	h.timedOut(t.Context())
	assert.Len(t, failures, 2)
	require.ErrorIs(t, h.setTarget(t.Context(), h.target), assert.AnError)
	h.awaited = "a slice"
	h.Stop()
	h.timedOut(t.Context())
	assert.Len(t, failures, 2)
}

// begun returns a handover whose first call of send is yet to come. It sends the number of slices.
func begun(send func(int) error, failed func(error)) *handover {
	h := &handover{node: nodetest.NodeName, patience: time.Minute, failed: func(_ context.Context, err error) { failed(err) }}
	h.Begin(New(Config{}), func(_ context.Context, r resourceslice.DriverResources) error {
		return send(len(r.Pools[names.PoolName(nodetest.NodeName)].Slices))
	})
	return h
}

// Only the last of the changes during the first call is sent, after it, and later calls are made at once.
func TestFirstCallInTheBackground(t *testing.T) {
	calls, proceed := make(chan int, 10), make(chan error)
	h := begun(func(n int) error {
		calls <- n
		if n == 1 {
			return <-proceed
		}
		return nil
	}, func(err error) { assert.NoError(t, err) })
	for n := range 3 {
		require.NoError(t, h.setTarget(t.Context(), make([]publish.Slice, n+1)))
	}
	assert.Equal(t, 1, <-calls)
	assert.Empty(t, calls)
	proceed <- nil
	assert.Equal(t, 3, <-calls)
	require.NoError(t, h.setTarget(t.Context(), make([]publish.Slice, 4)))
	assert.Equal(t, 4, <-calls)
	assert.Empty(t, calls)
}

func TestFirstCallIsRepeated(t *testing.T) {
	calls, failures := 0, make(chan error, 1)
	h := begun(func(int) error {
		if calls++; calls == 1 {
			return assert.AnError
		}
		return nil
	}, func(err error) { failures <- err })
	require.NoError(t, h.setTarget(t.Context(), make([]publish.Slice, 1)))
	require.ErrorIs(t, <-failures, assert.AnError)
	require.NoError(t, h.setTarget(t.Context(), make([]publish.Slice, 1)))
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.first
	}, nodetest.Patience, nodetest.Tick)
	assert.Equal(t, 2, calls)
}

// A stop neither waits for the first call nor reports that it ends it.
func TestStopDuringTheFirstCall(t *testing.T) {
	proceed := make(chan error)
	h := begun(func(int) error { return <-proceed }, func(err error) { assert.NoError(t, err) })
	require.NoError(t, h.setTarget(t.Context(), make([]publish.Slice, 1)))
	h.Stop()
	proceed <- assert.AnError
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.starting
	}, nodetest.Patience, nodetest.Tick)
	require.NoError(t, h.setTarget(t.Context(), make([]publish.Slice, 2)), "nothing is sent any more")
}
