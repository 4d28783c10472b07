package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// tainted counts the nodes that are without some of their GPUs, and how many were at
// once at most. The API server tells of the objects of a kind in the order in which they
// were written, so none that was there for a moment only is missed.
type tainted struct {
	// mu protects what follows.
	mu sync.Mutex
	// now has for each node the objects that say so.
	now  map[string]map[string]bool
	most int
	// lost says why not everything was seen.
	lost error
}

func newTainted() *tainted { return &tainted{now: map[string]map[string]bool{}} }

// set takes in that an object says, or does not say any more, that its node is tainted.
func (t *tainted) set(node, object string, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case is && t.now[node] == nil:
		t.now[node] = map[string]bool{object: true}
	case is:
		t.now[node][object] = true
	default:
		delete(t.now[node], object)
		if len(t.now[node]) == 0 {
			delete(t.now, node)
		}
	}
	t.most = max(t.most, len(t.now))
}

// seen is how many there are, and how many there were at once at most.
func (t *tainted) seen() (now, most int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.now), t.most, t.lost
}

// follow takes in what a watch tells until ctx ends.
func (t *tainted) follow(ctx context.Context, w watch.Interface, take func(watch.Event)) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				t.mu.Lock()
				t.lost = errors.Join(t.lost, fmt.Errorf("a watch has ended, so not every taint was seen: %v", e.Object))
				t.mu.Unlock()
				return
			}
			take(e)
		}
	}
}

// resume is a watch that goes on from a version of the API, also where the server ends
// it, as it does with those that are slow to take what they are sent.
func resume(ctx context.Context, version string, w cache.WatchFuncWithContext) (watch.Interface, error) {
	return watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: w})
}

// watchSlices counts the nodes with devices that are tainted for a switch.
func (c *cluster) watchSlices(ctx context.Context) (*tainted, error) {
	slices := c.Core.ResourceV1().ResourceSlices()
	there, err := slices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the ResourceSlices: %w", err)
	}
	w, err := resume(ctx, there.ResourceVersion, slices.Watch)
	if err != nil {
		return nil, fmt.Errorf("watch the ResourceSlices: %w", err)
	}
	t := newTainted()
	for i := range there.Items {
		t.takeSlice(&there.Items[i], true)
	}
	go t.follow(ctx, w, func(e watch.Event) {
		if slice, ok := e.Object.(*resourceapi.ResourceSlice); ok {
			t.takeSlice(slice, e.Type != watch.Deleted)
		}
	})
	return t, nil
}

func (t *tainted) takeSlice(slice *resourceapi.ResourceSlice, there bool) {
	is := slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool {
		return slices.ContainsFunc(d.Taints, func(taint resourceapi.DeviceTaint) bool { return taint.Key == names.TaintSwitching })
	})
	t.set(ptr.Deref(slice.Spec.NodeName, ""), slice.Name, there && is)
}

// watchStates counts the nodes whose GPUNode is in a state that taints GPUs.
func (c *cluster) watchStates(ctx context.Context) (*tainted, error) {
	there, err := c.tranche.GPUNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the GPUNodes: %w", err)
	}
	w, err := resume(ctx, there.ResourceVersion, c.tranche.GPUNodes().Watch)
	if err != nil {
		return nil, fmt.Errorf("watch the GPUNodes: %w", err)
	}
	t := newTainted()
	for i := range there.Items {
		t.takeNode(&there.Items[i], true)
	}
	go t.follow(ctx, w, func(e watch.Event) {
		if node, ok := e.Object.(*v1beta1.GPUNode); ok {
			t.takeNode(node, e.Type != watch.Deleted)
		}
	})
	return t, nil
}

func (t *tainted) takeNode(node *v1beta1.GPUNode, there bool) {
	t.set(node.Name, node.Name, there && node.Status.RequestsTaints())
}
