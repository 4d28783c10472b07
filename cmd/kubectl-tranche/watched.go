package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
)

// watched is a source that keeps objects up to date by watches. What is listed for the first time
// is watched from then on.
type watched struct {
	connection
	// changed has an element if something is different from the last time.
	changed chan struct{}

	mu    sync.Mutex // for the rest
	kinds map[string]*watchedKind
	// lost is when the API server failed last, and why.
	lost   time.Time
	reason string
}

// watchedKind are the objects of one list.
type watchedKind struct {
	store cache.Store
	// ready is closed when the objects are there, or err.
	ready chan struct{}
	once  sync.Once
	err   error
}

func (k *watchedKind) settle(err error) {
	k.once.Do(func() {
		k.err = err
		close(k.ready)
	})
}

func newWatched(c connection) *watched {
	return &watched{connection: c, changed: make(chan struct{}, 1), kinds: map[string]*watchedKind{}}
}

// wait waits until something changes, or for so long, 0 for ever. It returns false if the context
// ends.
func (w *watched) wait(ctx context.Context, most time.Duration) bool {
	var late <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.changed:
	case <-late:
	case <-ctx.Done():
		return false
	}
	return true
}

func (w *watched) change() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// stale is for how long a failure is told.
const stale = time.Minute

// wrong remembers that the API server does not tell what changes.
func (w *watched) wrong(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.reason = time.Now(), err.Error()
	w.change()
}

// notes say whether what is shown may be old.
func (w *watched) notes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason == "" || time.Since(w.lost) > stale {
		return nil
	}
	return []string{"This may be old, because the API server cannot be watched: " + strings.TrimSuffix(w.reason, ".") + "."}
}

// keep returns the objects of a kind, and watches them from the first time on.
func keep[T any](ctx context.Context, w *watched, name string, lw cache.ListerWatcher) ([]T, error) {
	w.mu.Lock()
	k := w.kinds[name]
	if k == nil {
		k = w.start(ctx, any(new(T)).(runtime.Object), lw) //nolint:forcetypeassert // all lists are of such
		w.kinds[name] = k
	}
	w.mu.Unlock()
	if err := k.wait(ctx, strings.TrimSpace(name)); err != nil {
		return nil, err
	}
	if k.err != nil {
		w.forget(name, k.err)
		return nil, k.err
	}
	all := []T{}
	for _, o := range k.store.List() {
		if item, ok := o.(*T); ok {
			all = append(all, *item)
		}
	}
	return all, nil
}

// wait waits until the objects are there, or it is known why not.
func (k *watchedKind) wait(ctx context.Context, name string) error {
	progress := progressOf(ctx)
	defer progress.Done()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-k.ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			progress.Say("Reading %s: %d so far.", name, len(k.store.ListKeys()))
		}
	}
}

// forget has a list tried again after a failure that may pass.
func (w *watched) forget(name string, err error) {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kinds, name)
}

// start starts a watch that ends with the context, or if its first list fails.
func (w *watched) start(ctx context.Context, kind runtime.Object, lw cache.ListerWatcher) *watchedKind {
	ctx, cancel := context.WithCancel(ctx)
	informer := cache.NewSharedIndexInformer(lw, kind, 0, nil)
	k := &watchedKind{store: informer.GetStore(), ready: make(chan struct{})}
	failed := func(_ context.Context, _ *cache.Reflector, err error) {
		switch {
		case !informer.HasSynced():
			k.settle(err)
			cancel()
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			// Watches end now and then, and are started again.
		default:
			w.wrong(err)
		}
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.change() },
		UpdateFunc: func(any, any) { w.change() },
		DeleteFunc: func(any) { w.change() },
	}
	handler, err := informer.AddEventHandler(changed)
	err = errors.Join(err, informer.SetWatchErrorHandlerWithContext(failed), informer.SetTransform(withoutManagedFields))
	if err != nil {
		cancel()
		k.settle(err)
		return k
	}
	go func() {
		defer cancel()
		informer.RunWithContext(ctx)
	}()
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			k.settle(nil)
		}
	}()
	return k
}

// withoutManagedFields saves the memory of what nobody looks at.
func withoutManagedFields(o any) (any, error) {
	if object, err := meta.Accessor(o); err == nil {
		object.SetManagedFields(nil)
	}
	return o, nil
}

func (w *watched) listSlices(ctx context.Context, selector string) ([]resourceapi.ResourceSlice, error) {
	of := w.kubernetes.ResourceV1().ResourceSlices()
	return keep[resourceapi.ResourceSlice](ctx, w, "slices "+selector, client.ListWatchOf(w.kubernetes, of.List, of.Watch, metav1.ListOptions{FieldSelector: selector}))
}

func (w *watched) listClaims(ctx context.Context, namespace string) ([]resourceapi.ResourceClaim, error) {
	of := w.kubernetes.ResourceV1().ResourceClaims(namespace)
	return keep[resourceapi.ResourceClaim](ctx, w, "claims "+namespace, client.ListWatchOf(w.kubernetes, of.List, of.Watch, metav1.ListOptions{}))
}

func (w *watched) listClasses(ctx context.Context) ([]resourceapi.DeviceClass, error) {
	of := w.kubernetes.ResourceV1().DeviceClasses()
	return keep[resourceapi.DeviceClass](ctx, w, "classes", client.ListWatchOf(w.kubernetes, of.List, of.Watch, metav1.ListOptions{}))
}

func (w *watched) listRules(ctx context.Context) ([]resourceapi.DeviceTaintRule, error) {
	of := w.kubernetes.ResourceV1().DeviceTaintRules()
	return unlessMissing(keep[resourceapi.DeviceTaintRule](ctx, w, "rules", client.ListWatchOf(w.kubernetes, of.List, of.Watch, metav1.ListOptions{})))
}

func (w *watched) nodes(ctx context.Context, labels string) ([]corev1.Node, error) {
	of := w.kubernetes.CoreV1().Nodes()
	return keep[corev1.Node](ctx, w, "nodes "+labels, client.ListWatchOf(w.kubernetes, of.List, of.Watch, metav1.ListOptions{LabelSelector: labels}))
}

func (w *watched) listPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	of := w.kubernetes.CoreV1().Pods(namespace)
	return keep[corev1.Pod](ctx, w, "pods "+namespace+" "+selector, client.ListWatchOf(w.kubernetes, of.List, of.Watch, metav1.ListOptions{FieldSelector: selector}))
}

func (w *watched) listGPUNodes(ctx context.Context) ([]v1alpha1.GPUNode, error) {
	return unlessHidden(keep[v1alpha1.GPUNode](ctx, w, "gpunodes", client.ListWatch(w.ours.GPUNodes(), "")))
}
