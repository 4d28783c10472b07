package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

const (
	gpuA = "gpu-0000-01-00-0"
	gpuB = "gpu-0000-02-00-0"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// world is an API server, nodes with plugins, and a controller, on a clock that
// stands still until it is told.
type world struct {
	t      *testing.T
	api    client.WithWatch
	clock  *clocktesting.FakeClock
	r      *Reconciler
	opts   Options
	events *notes
	nodes  map[string]*fakeNode
	// stale is what the controller's caches have, if they are late.
	stale client.WithWatch
	// wake is told of nodes that need not wait any more. Without it, the next round of a node
	// is for those that are in woken.
	wake func(node string)
	// list answers lists in place of the API server, where it can.
	list func(list client.ObjectList, o *client.ListOptions) bool
	// failList makes lists of the controller fail.
	failList func(list client.ObjectList) error
	// lastErr is what the controller complained of last, and retry how long after the
	// last of a row of errors it looks again, by node.
	lastErr error
	retry   map[string]time.Duration

	// byHand: rounds do not decide the plans.
	byHand bool

	// mu guards what follows: controllers of many nodes write at once.
	mu sync.Mutex
	// writes counts the controller's by verb and kind.
	writes map[string]int
	// refuse makes calls of the controller fail; evict, evictions.
	refuse func(verb string, o client.Object) error
	// lose makes the answer to a call get lost that was obeyed.
	lose  func() error
	evict func(pod types.NamespacedName) error
	// tryEvict answers dry runs of evictions.
	tryEvict func(pod types.NamespacedName) error
	// budgetSeen is the most nodes that were tainted at once.
	budgetSeen int
	tainted    map[string]bool
	// woken are nodes that the controller wants to look at.
	woken map[string]bool
}

// notes are the events.
type notes struct {
	mu    sync.Mutex
	texts []string
}

func (r *notes) Eventf(o, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _ := meta.Accessor(o)
	r.texts = append(r.texts, fmt.Sprintf("%s %s %s: %s", m.GetName(), kind, reason, fmt.Sprintf(note, args...)))
}

func (r *notes) AnnotatedEventf(o, related runtime.Object, _ map[string]string, kind, reason, action, note string, args ...any) {
	r.Eventf(o, related, kind, reason, action, note, args...)
}

func (r *notes) WithLogger(any) events.EventRecorderLogger { return nil }

type worldOption func(*world)

func newWorld(t *testing.T, options ...worldOption) *world {
	t.Helper()
	scheme, err := NewScheme()
	require.NoError(t, err)
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(noon), events: &notes{}, nodes: map[string]*fakeNode{},
		writes: map[string]int{}, tainted: map[string]bool{}, woken: map[string]bool{}, retry: map[string]time.Duration{},
		opts: Options{MaxUnavailable: "1", Deadlines: state.DefaultDeadlines(), PauseLabels: DefaultPauseLabels, MonitoringNamespaces: DefaultMonitoringNamespaces},
	}
	w.api = newAPI(scheme)
	for _, o := range options {
		o(w)
	}
	w.startController()
	return w
}

// newAPI is an API server with objects.
func newAPI(scheme *runtime.Scheme, objects ...client.Object) client.WithWatch {
	// A tracker without managed fields, which nobody here asks for and which take most of
	// the time of a write.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	return fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.GPUNode{}, &v1beta1.PartitionPlan{}, &resourceapi.ResourceClaim{}).
		WithIndex(&resourceapi.ResourceClaim{}, drain.NodeIndex, drain.NodesOf).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&resourceapi.ResourceSlice{}, resourceapi.ResourceSliceSelectorNodeName, func(o client.Object) []string {
			return []string{*o.(*resourceapi.ResourceSlice).Spec.NodeName}
		}).
		WithIndex(&resourceapi.ResourceSlice{}, resourceapi.ResourceSliceSelectorDriver, func(o client.Object) []string {
			return []string{o.(*resourceapi.ResourceSlice).Spec.Driver}
		}).Build()
}

// startController starts a controller that knows nothing of the one before.
func (w *world) startController() {
	c := interceptor.NewClient(w.api, w.watchWrites())
	r, err := New(interceptor.NewClient(c, w.cached()), c, w.optsWithRegistry(), func(node string) {
		if w.wake != nil {
			w.wake(node)
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.woken[node] = true
	}, func() {})
	require.NoError(w.t, err)
	r.Events, r.Plans.Events, r.Adopter.Events = w.events, w.events, w.events
	w.r = r
}

func (w *world) optsWithRegistry() Options {
	o := w.opts
	o.Registry, o.Clock = prometheus.NewRegistry(), w.clock
	return o
}

// watchWrites counts what the controller writes, makes it fail where it is told to, and
// watches the budget.
func (w *world) watchWrites() interceptor.Funcs {
	note := func(verb string, o client.Object) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes[fmt.Sprintf("%s %T", verb, o)]++
		if w.refuse != nil {
			return w.refuse(verb, o)
		}
		return nil
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := w.read("get", o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if w.failList != nil {
				if err := w.failList(l); err != nil {
					return err
				}
			}
			if w.list != nil && w.list(l, (&client.ListOptions{}).ApplyOptions(opts)) {
				return nil
			}
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := note("create", o); err != nil {
				return err
			}
			return w.lost(c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := note("update", o); err != nil {
				return err
			}
			return w.lost(c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := note("patch", o); err != nil {
				return err
			}
			return w.lost(c.Patch(ctx, o, p, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			verb := "delete"
			if slices.Contains((&client.DeleteOptions{}).ApplyOptions(opts).DryRun, metav1.DryRunAll) {
				verb = "try to delete"
			}
			if err := note(verb, o); err != nil {
				return err
			}
			return w.lost(c.Delete(ctx, o, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := note("status", o); err != nil {
				return err
			}
			g, isNode := o.(*v1beta1.GPUNode)
			if isNode {
				w.drains(g)
			}
			if err := c.SubResource(sub).Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			if isNode {
				w.seen(g)
				if w.wake != nil {
					w.wake(g.Name)
				}
			}
			return w.lost(nil)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption) error {
			if dryRun(opts, body) {
				if err := note("try "+sub, o); err != nil && !apierrors.IsConflict(err) {
					return err // A conflict would say that the pod is another one.
				}
				return w.try(ctx, o)
			}
			if err := note(sub, o); err != nil {
				return err
			}
			w.evicted(client.ObjectKeyFromObject(o))
			if w.evict != nil {
				if err := w.evict(client.ObjectKeyFromObject(o)); err != nil {
					return err
				}
			}
			return w.lost(c.SubResource(sub).Create(ctx, o, body, opts...))
		},
	}
}

func (w *world) lost(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.lose != nil {
		return w.lose()
	}
	return err
}

func (w *world) read(verb string, o client.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return w.refuse(verb, o)
	}
	return nil
}

func (w *world) seen(n *v1beta1.GPUNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.Status.RequestsTaints() {
		w.tainted[n.Name] = true
	} else {
		delete(w.tainted, n.Name)
	}
	w.budgetSeen = max(w.budgetSeen, len(w.tainted))
}

// profile adds a profile, or changes it.
func (w *world) profile(name string, change ...func(*v1beta1.PartitionProfile)) {
	p := &v1beta1.PartitionProfile{}
	p.Name = name
	p.Spec.Rules = []v1beta1.Rule{{XCP: &v1beta1.XCP{ComputePartition: "CPX"}}}
	for _, c := range change {
		c(p)
	}
	if err := w.api.Create(w.t.Context(), p); apierrors.IsAlreadyExists(err) {
		var old v1beta1.PartitionProfile
		require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKeyFromObject(p), &old))
		p.ResourceVersion = old.ResourceVersion
		require.NoError(w.t, w.api.Update(w.t.Context(), p))
	} else {
		require.NoError(w.t, err)
	}
}

// label sets a label of a node; empty takes it off.
func (w *world) label(node, key, value string) {
	w.changeNode(node, func(n *corev1.Node) {
		if value == "" {
			delete(n.Labels, key)
			return
		}
		metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
	})
}

func (w *world) wants(node, profile string) { w.label(node, names.LabelProfile, profile) }

func (w *world) changeNode(name string, change func(*corev1.Node)) {
	n := w.node(name)
	change(n)
	require.NoError(w.t, w.api.Update(w.t.Context(), n))
}

func (w *world) node(name string) *corev1.Node {
	var n corev1.Node
	require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &n))
	return &n
}

func (w *world) gpuNode(name string) *v1beta1.GPUNode {
	var n v1beta1.GPUNode
	require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &n))
	return &n
}

// busy reports whether a node is being switched, as the budget counts.
func (w *world) busy(name string) bool {
	var g v1beta1.GPUNode
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &g); err != nil {
		return false
	}
	n := rollout.Observe(&g, nil, true, w.clock.Now())
	return n.Moving
}

// moving is how many nodes are being switched.
func (w *world) moving() (n int) {
	for name := range w.nodes {
		if w.busy(name) {
			n++
		}
	}
	return n
}

// pod makes a pod that holds a device by a claim of its own.
func (w *world) pod(node, name, gpuID, device string, change ...func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("pod-" + name)}}
	pod.Spec.NodeName = node
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + "-gpu", UID: types.UID("claim-" + name)}}
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: names.DriverName, Pool: names.PoolName(node), Device: device}},
	}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
	for _, c := range change {
		c(pod, claim)
	}
	require.NoError(w.t, w.api.Create(w.t.Context(), pod))
	status := claim.Status
	require.NoError(w.t, w.api.Create(w.t.Context(), claim))
	claim.Status = status
	require.NoError(w.t, w.api.Status().Update(w.t.Context(), claim))
}

// podThere reports whether a pod is there.
func (w *world) podThere(name string) bool {
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "team", Name: name}, &corev1.Pod{})
	require.NoError(w.t, client.IgnoreNotFound(err))
	return err == nil
}
