package publish_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// apiServer is an API server in memory that makes up names as the real one
// does, and counts what is written.
type apiServer struct {
	*fake.Clientset
	writes atomic.Int64
}

func newAPIServer() *apiServer {
	s := &apiServer{Clientset: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "1"}})}
	s.PrependReactor("*", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if verb := action.GetVerb(); verb != "list" && verb != "watch" && verb != "get" {
			s.writes.Add(1)
		}
		// Creates and updates have an object.
		if with, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := with.GetObject().(*resourceapi.ResourceSlice); ok {
				slice.ResourceVersion += "1"
				if slice.Name == "" {
					slice.Name = fmt.Sprintf("%s%05d", slice.GenerateName, s.writes.Load())
				}
			}
		}
		return false, nil, nil
	})
	return s
}

// run starts the controller that every DRA plugin publishes with, and waits
// until it has written as often as wanted and has nothing left to do.
func (s *apiServer) run(t *testing.T, gpus []publish.GPU, wantWrites int64) *publisher {
	t.Helper()
	resources, errs := publish.Resources(node, gpus)
	require.Empty(t, errs)
	p := &publisher{server: s, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	before := s.writes.Load()
	controller, err := resourceslice.StartController(t.Context(), resourceslice.Options{
		DriverName: names.DriverName,
		KubeClient: s,
		Owner:      &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node, UID: "1"},
		Resources:  &resources,
		Queue:      p.queue,
		ErrorHandler: func(_ context.Context, err error, msg string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.errs = append(p.errs, fmt.Errorf("%s: %w", msg, err))
		},
	})
	require.NoError(t, err)
	p.controller = controller
	t.Cleanup(controller.Stop)
	p.expect(t, before, wantWrites)
	return p
}

// publisher is one run of the plugin, as far as slices go.
type publisher struct {
	server     *apiServer
	queue      workqueue.TypedRateLimitingInterface[string]
	controller *resourceslice.Controller

	mu   sync.Mutex
	errs []error
}

// update publishes the GPUs again.
func (p *publisher) update(t *testing.T, gpus []publish.GPU, wantWrites int64) {
	t.Helper()
	resources, errs := publish.Resources(node, gpus)
	require.Empty(t, errs)
	before := p.server.writes.Load()
	p.controller.Update(&resources)
	p.expect(t, before, wantWrites)
}

func (p *publisher) expect(t *testing.T, before, wantWrites int64) {
	t.Helper()
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, wantWrites, p.server.writes.Load()-before, "writes")
		assert.Zero(c, p.queue.Len())
	}, time.Minute, 10*time.Millisecond)
	time.Sleep(100 * time.Millisecond) // what was taken off the queue last
	assert.Equal(t, wantWrites, p.server.writes.Load()-before, "writes")
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.Empty(t, p.errs)
}

// TestWrites counts what publishing costs the API server: nothing after a
// restart on unchanged hardware, one write when one GPU changes.
func TestWrites(t *testing.T) {
	inventory := builtIn(t, "h200x8")
	gpus := gpusOf(t, inventory)
	server := newAPIServer()
	run := server.run(t, gpus, 9)
	run.update(t, gpus, 0)
	run.controller.Stop()

	gpus = gpusOf(t, inventory)
	run = server.run(t, gpus, 0)
	gpus[3].Taints = []resourceapi.DeviceTaint{{Key: names.TaintUnhealthy, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	run.update(t, gpus, 1)
	run.update(t, gpus, 0)
	gpus[3].Taints = nil
	run.update(t, gpus, 1)
	gpus[5].Withheld = true
	run.update(t, gpus, 1)
	gpus[5].Withheld = false
	run.update(t, gpus, 1)
}

// TestAMDWrites: a switch of a GPU costs the API server nothing, nor does a
// restart in another mode than that in which the GPUs were published.
func TestAMDWrites(t *testing.T) {
	inventory := builtIn(t, "mi300x8")
	driver := amdDriver(t, inventory)
	server := newAPIServer()
	gpus := amdGPUs(t, driver)
	run := server.run(t, gpus, 9)
	switchTo(t, driver, gpus[2], "cpx")
	switchTo(t, driver, gpus[5], "dpx")
	run.update(t, amdGPUs(t, driver), 0)
	run.controller.Stop()

	for i := range inventory.AMD {
		inventory.AMD[i].ComputeMode = xcp.QPX
	}
	run = server.run(t, gpusOf(t, inventory), 0)
	gpus[3].DeviceTaints = map[string][]resourceapi.DeviceTaint{
		gpus[3].Placements[0].Name(): {{Key: names.TaintBusy, Effect: resourceapi.DeviceTaintEffectNoSchedule}},
	}
	run.update(t, gpus, 1)
}
