package clientfake

import (
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// Complete returns a tracker whose watches miss nothing that has happened since the list whose
// version they name. The tracker of client-go misses deletions, and sends objects that were
// created in between as it keeps them, so that the transform of an informer changes them there.
func Complete(of clienttesting.ObjectTracker) clienttesting.ObjectTracker {
	return &tracker{ObjectTracker: of, deleted: map[schema.GroupVersionResource][]runtime.Object{}}
}

// Serve has a fake client of client-go answer with a complete tracker.
func Serve(c *clienttesting.Fake, of clienttesting.ObjectTracker) {
	complete := Complete(of)
	React(c, "*", "*", clienttesting.ObjectReaction(complete))
	c.PrependWatchReactor("*", WatchReaction(complete))
}

// React puts a reaction before the others, also while the client is used, which the method of
// client-go's Fake cannot do.
func React(c *clienttesting.Fake, verb, resource string, reaction clienttesting.ReactionFunc) {
	c.Lock()
	defer c.Unlock()
	c.ReactionChain = append([]clienttesting.Reactor{&clienttesting.SimpleReactor{Verb: verb, Resource: resource, Reaction: reaction}}, c.ReactionChain...)
}

// WatchReaction answers watches with what the tracker has.
func WatchReaction(of clienttesting.ObjectTracker) clienttesting.WatchReactionFunc {
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		var opts metav1.ListOptions
		if w, ok := action.(clienttesting.WatchActionImpl); ok {
			opts = w.ListOptions
		}
		w, err := of.Watch(action.GetResource(), action.GetNamespace(), opts)
		return err == nil, w, err
	}
}

type tracker struct {
	clienttesting.ObjectTracker

	// mu lets no object be deleted while a watch begins. It protects deleted, which has all
	// objects that were deleted, the latest last.
	mu      sync.Mutex
	deleted map[schema.GroupVersionResource][]runtime.Object
}

// deletions is the factor in the version of a list: this times the version that the tracker in
// it gave, and the number of deletions before the list.
const deletions = 1_000_000

func (t *tracker) List(gvr schema.GroupVersionResource, gvk schema.GroupVersionKind, namespace string, opts ...metav1.ListOptions) (runtime.Object, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, err := t.ObjectTracker.List(gvr, gvk, namespace, opts...)
	if err != nil {
		return nil, err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	version, err := strconv.Atoi(of.GetResourceVersion())
	if err != nil {
		return nil, fmt.Errorf("version of the list of %s: %w", gvr.Resource, err)
	}
	of.SetResourceVersion(strconv.Itoa(version*deletions + len(t.deleted[gvr])))
	return list, nil
}

func (t *tracker) Delete(gvr schema.GroupVersionResource, namespace, name string, opts ...metav1.DeleteOptions) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	object, err := t.Get(gvr, namespace, name)
	if err != nil {
		return err
	}
	if err := t.ObjectTracker.Delete(gvr, namespace, name, opts...); err != nil {
		return err
	}
	t.deleted[gvr] = append(t.deleted[gvr], object)
	return nil
}

func (t *tracker) Watch(gvr schema.GroupVersionResource, namespace string, opts ...metav1.ListOptions) (watch.Interface, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missed []runtime.Object
	if len(opts) > 0 {
		version, err := strconv.Atoi(opts[0].ResourceVersion)
		if err == nil && version >= deletions {
			missed = t.deleted[gvr][version%deletions:]
			opts[0].ResourceVersion = strconv.Itoa(version / deletions)
		}
	}
	later, err := t.ObjectTracker.Watch(gvr, namespace, opts...)
	if err != nil {
		return nil, err
	}
	w := &watcher{Interface: later, results: make(chan watch.Event), stopped: make(chan struct{})}
	go w.run(namespace, missed)
	return w, nil
}

// watcher sends that objects were deleted, and then copies of what comes later. An object that
// was deleted and created again comes last.
type watcher struct {
	watch.Interface
	results chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

func (w *watcher) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

func (w *watcher) run(namespace string, deleted []runtime.Object) {
	defer close(w.results)
	for _, object := range deleted {
		m, err := meta.Accessor(object)
		if err == nil && (namespace == "" || m.GetNamespace() == namespace) && !w.send(watch.Deleted, object) {
			return
		}
	}
	for e := range w.Interface.ResultChan() {
		if !w.send(e.Type, e.Object) {
			return
		}
	}
}

// send reports whether the watch goes on.
func (w *watcher) send(kind watch.EventType, object runtime.Object) bool {
	select {
	case w.results <- watch.Event{Type: kind, Object: object.DeepCopyObject()}:
		return true
	case <-w.stopped:
		return false
	}
}
