package publisher

import (
	"context"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// handoverPatience is how long the API server may take to store a changed slice. After that,
// all other changes are handed over at once.
const handoverPatience = 3 * time.Second

// handover passes changed slices to the kubeletplugin helper one by one. If one slice has
// changed, the helper writes that slice only and keeps the pool's generation. If several have
// changed, it writes all slices of the pool. Until it has done so, the pool is incomplete,
// and the scheduler uses none of the node's GPUs.
type handover struct {
	node string
	// send passes what the node publishes to the helper.
	send func(context.Context, resourceslice.DriverResources) error
	// failed handles errors for which no caller waits.
	failed   func(context.Context, error)
	patience time.Duration

	// mu protects the fields below, and keeps calls of send in order.
	mu sync.Mutex
	// handed is what the helper has, target what it should have.
	handed, target []publish.Slice
	// awaited is the digest of the last slice that was handed over, empty once the API
	// server has stored it.
	awaited string
	timer   *time.Timer
	// first is set until a call of send has succeeded, starting while the first one is in progress.
	// It waits for the API server, so it is made in the background: neither the kubelet nor a stop
	// of the plugin must wait for it.
	first, starting bool
	stopped         bool
}

// NewHandover returns a handover for a publisher. It starts with Begin.
func NewHandover(p *Publisher) *handover {
	return &handover{
		node: p.Node, patience: handoverPatience,
		failed: func(ctx context.Context, err error) { p.failed(ctx, err, handingOver) },
	}
}

// Client returns a client that reports each ResourceSlice that it writes to the handover.
func (h *handover) Client(c kubernetes.Interface) kubernetes.Interface {
	return observed{c, h.stored}
}

// Begin makes a publisher publish through the handover.
func (h *handover) Begin(p *Publisher, send func(context.Context, resourceslice.DriverResources) error) {
	h.send, h.first = send, true
	p.start(h.setTarget)
}

// setTarget sets the target. It is the publisher's send.
func (h *handover) setTarget(ctx context.Context, target []publish.Slice) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.target = target
	switch {
	case h.stopped, h.starting:
		return nil // start continues
	case h.first:
		h.starting = true
		h.take()
		go h.start(context.WithoutCancel(ctx), h.resources())
		return nil
	case h.awaited != "" && sameCounters(h.handed, h.target):
		return nil // stored continues when the API server has the awaited slice
	}
	return h.next(ctx)
}

// start makes the first call of send, and hands over what has changed meanwhile. If the call fails,
// the next target starts again.
func (h *handover) start(ctx context.Context, resources resourceslice.DriverResources) {
	err := h.send(ctx, resources)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first, h.starting = err != nil, false
	if h.stopped {
		return // a stop ends the call
	}
	if err == nil && !equality.Semantic.DeepEqual(h.handed, h.target) {
		err = h.next(ctx)
	}
	if err != nil {
		h.failed(ctx, err)
	}
}

// next hands over the next changed slice, or all slices if counters have changed. The caller
// holds the lock.
func (h *handover) next(ctx context.Context) error {
	if !sameCounters(h.handed, h.target) {
		return h.all(ctx)
	}
	for i := range h.target {
		if digest := publish.Digest(h.target[i].Devices); digest != publish.Digest(h.handed[i].Devices) {
			h.handed[i] = h.target[i]
			h.awaited = digest
			h.timer = time.AfterFunc(h.patience, func() { h.timedOut(context.WithoutCancel(ctx)) })
			return h.send(ctx, h.resources())
		}
	}
	return h.send(ctx, h.resources())
}

// all hands over all slices. The caller holds the lock.
func (h *handover) all(ctx context.Context) error {
	h.stopWaiting()
	h.take()
	return h.send(ctx, h.resources())
}

// take makes the target what the helper has. The caller holds the lock.
func (h *handover) take() { h.handed = slices.Clone(h.target) }

// stopWaiting ends the wait for a slice. The caller holds the lock.
func (h *handover) stopWaiting() {
	h.awaited = ""
	if h.timer != nil {
		h.timer.Stop()
	}
}

// resources is what the helper has now. The caller holds the lock.
func (h *handover) resources() resourceslice.DriverResources {
	if len(h.handed) == 0 {
		return resourceslice.DriverResources{}
	}
	all := lists.Map(h.handed, func(s publish.Slice) resourceslice.Slice {
		return resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters}
	})
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{names.PoolName(h.node): {Slices: all}}}
}

// stored is called with each slice that the API server has stored.
func (h *handover) stored(ctx context.Context, slice *resourceapi.ResourceSlice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awaited == "" || publish.Digest(slice.Spec.Devices) != h.awaited {
		return
	}
	h.stopWaiting()
	if equality.Semantic.DeepEqual(h.handed, h.target) {
		return
	}
	if err := h.next(context.WithoutCancel(ctx)); err != nil {
		h.failed(ctx, err)
	}
}

// timedOut ends the wait for a slice: the API server had it already, or does not answer.
func (h *handover) timedOut(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awaited == "" {
		return
	}
	if err := h.all(ctx); err != nil {
		h.failed(ctx, err)
	}
}

// Stop makes the handover ignore further changes.
func (h *handover) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopWaiting()
	h.stopped = true
}

// sameCounters reports whether two pools have the same number of slices and the same counters.
// Counters must change together with the devices that consume them.
func sameCounters(a, b []publish.Slice) bool {
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

// observed is a client that reports each ResourceSlice that it writes.
type observed struct {
	kubernetes.Interface
	stored func(context.Context, *resourceapi.ResourceSlice)
}

// ResourceV1 implements kubernetes.Interface.
func (c observed) ResourceV1() resourcev1client.ResourceV1Interface {
	return observedV1{c.Interface.ResourceV1(), c.stored}
}

// IsWatchListSemanticsUnSupported tells client-go whether the wrapped client can stream lists:
// fake ones cannot.
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
