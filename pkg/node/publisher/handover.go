package publisher

import (
	"context"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// handoverPatience is how long a changed slice may take to be stored before all other
// changes are handed over with it.
const handoverPatience = 3 * time.Second

// handover gives resources to the kubeletplugin helper, one changed slice after the
// other. The helper keeps a pool's generation if one slice has changed, which is one
// write. If more have changed, it writes all slices of the pool, and until it is done the
// pool is incomplete and the scheduler uses none of the node's GPUs.
type handover struct {
	node string
	// send hands resources to the helper.
	send func(context.Context, resourceslice.DriverResources) error
	// failed is told of errors when nobody waits for them.
	failed   func(context.Context, error)
	patience time.Duration

	// mu protects what follows, and keeps what is sent in order.
	mu sync.Mutex
	// handed is what the helper has, target is what it is to have in the end.
	handed, target []resourceslice.Slice
	// awaited is the digest of the slice that was handed over last, empty once the API
	// server has stored it.
	awaited string
	timer   *time.Timer
}

// NewHandover hands over what a publisher publishes, once Begin is called.
func NewHandover(p *Publisher) *handover {
	return &handover{
		node: p.Node, patience: handoverPatience,
		failed: func(ctx context.Context, err error) { p.failed(ctx, err, handingOver) },
	}
}

// Client is a client that tells the handover of each ResourceSlice that it has written.
func (h *handover) Client(c kubernetes.Interface) kubernetes.Interface {
	return observed{c, h.stored}
}

// Begin has a publisher publish through the handover, to send.
func (h *handover) Begin(p *Publisher, send func(context.Context, resourceslice.DriverResources) error) {
	h.send = send
	p.start(h.give)
}

// give makes resources the target. It is a publisher's send.
func (h *handover) give(ctx context.Context, resources resourceslice.DriverResources) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.target = resources.Pools[gpu.PoolName(h.node)].Slices
	if h.awaited != "" && sameCounters(h.handed, h.target) {
		return nil // next goes on when the slice is stored
	}
	return h.next(ctx)
}

// next hands over the next slice that has changed, or everything where one slice alone
// would not make sense. The caller holds the lock.
func (h *handover) next(ctx context.Context) error {
	h.settle()
	if !sameCounters(h.handed, h.target) {
		return h.all(ctx)
	}
	for i := range h.target {
		if digest := publish.Digest(h.target[i].Devices); digest != publish.Digest(h.handed[i].Devices) {
			h.handed[i] = h.target[i]
			h.awaited = digest
			h.timer = time.AfterFunc(h.patience, func() { h.late(context.WithoutCancel(ctx)) })
			return h.send(ctx, h.resources())
		}
	}
	return h.send(ctx, h.resources())
}

// all hands over all that is left. The caller holds the lock.
func (h *handover) all(ctx context.Context) error {
	h.settle()
	h.handed = append([]resourceslice.Slice(nil), h.target...)
	return h.send(ctx, h.resources())
}

// settle ends the wait for a slice. The caller holds the lock.
func (h *handover) settle() {
	h.awaited = ""
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// resources is what the helper has now. The caller holds the lock.
func (h *handover) resources() resourceslice.DriverResources {
	if len(h.handed) == 0 {
		return resourceslice.DriverResources{}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		gpu.PoolName(h.node): {Slices: append([]resourceslice.Slice(nil), h.handed...)},
	}}
}

// stored takes in that the API server has stored a slice.
func (h *handover) stored(ctx context.Context, slice *resourceapi.ResourceSlice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awaited == "" || publish.Digest(slice.Spec.Devices) != h.awaited {
		return
	}
	h.settle()
	if equality.Semantic.DeepEqual(h.handed, h.target) {
		return
	}
	if err := h.next(context.WithoutCancel(ctx)); err != nil {
		h.failed(ctx, err)
	}
}

// late gives up waiting for a slice: the API server had it already, or does not answer.
func (h *handover) late(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awaited == "" {
		return
	}
	if err := h.all(ctx); err != nil {
		h.failed(ctx, err)
	}
}

// Stop hands over nothing any more.
func (h *handover) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settle()
	h.send = func(context.Context, resourceslice.DriverResources) error { return nil }
}

// sameCounters tells whether two pools have as many slices and the same counters. Devices
// that consume other counters must change together with these.
func sameCounters(a, b []resourceslice.Slice) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equality.Semantic.DeepEqual(a[i].SharedCounters, b[i].SharedCounters) {
			return false
		}
	}
	return true
}

// observed is a client that tells of each ResourceSlice that it has written.
type observed struct {
	kubernetes.Interface
	stored func(context.Context, *resourceapi.ResourceSlice)
}

// ResourceV1 implements kubernetes.Interface.
func (c observed) ResourceV1() resourcev1client.ResourceV1Interface {
	return observedV1{c.Interface.ResourceV1(), c.stored}
}

// IsWatchListSemanticsUnSupported tells client-go whether the client can stream lists, as
// the client behind it answers: fake ones cannot.
func (c observed) IsWatchListSemanticsUnSupported() bool {
	behind, ok := c.Interface.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && behind.IsWatchListSemanticsUnSupported()
}

type observedV1 struct {
	resourcev1client.ResourceV1Interface
	stored func(context.Context, *resourceapi.ResourceSlice)
}

func (c observedV1) ResourceSlices() resourcev1client.ResourceSliceInterface {
	return observedSlices{c.ResourceV1Interface.ResourceSlices(), c.stored}
}

type observedSlices struct {
	resourcev1client.ResourceSliceInterface
	stored func(context.Context, *resourceapi.ResourceSlice)
}

func (c observedSlices) Create(ctx context.Context, slice *resourceapi.ResourceSlice, options metav1.CreateOptions) (*resourceapi.ResourceSlice, error) {
	now, err := c.ResourceSliceInterface.Create(ctx, slice, options)
	if err == nil {
		c.stored(ctx, now)
	}
	return now, err
}

func (c observedSlices) Update(ctx context.Context, slice *resourceapi.ResourceSlice, options metav1.UpdateOptions) (*resourceapi.ResourceSlice, error) {
	now, err := c.ResourceSliceInterface.Update(ctx, slice, options)
	if err == nil {
		c.stored(ctx, now)
	}
	return now, err
}
