package waiting

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/controller/queue"
)

// Options say when pods are told, and how much that may cost.
type Options struct {
	// After is how long a pod waits before it is told. 0: none is.
	After time.Duration
	// PerSecond is how many calls to the API server are made each second at most.
	PerSecond float64
	// Clock is the clock, nil: that of the machine.
	Clock    clock.PassiveClock
	Registry prometheus.Registerer
}

// Reconciler looks after pods that wait.
type Reconciler struct {
	Client client.Client
	// Reader reads from the API server, Pods from a cache of the pods that wait for a node.
	Reader, Pods client.Reader
	Clock        clock.PassiveClock
	Limiter      *rate.Limiter
	After        time.Duration
	// HasRules: the API server serves DeviceTaintRules.
	HasRules bool
	// Effort limits the time that is spent on judging, in milliseconds.
	Effort *rate.Limiter
	// JudgeSoon and LookSoon have a node judged and a pod looked at.
	JudgeSoon, LookSoon func(reconcile.Request)

	memory   *memory
	metrics  *metrics
	compiled *cel.Cache
}

const (
	// effort is how much of each second is spent on judging, and effortAtOnce without a pause, in milliseconds:
	// the controller has more important work.
	effort, effortAtOnce = 500, 2000
	// mostSelectors is how many compiled selectors are kept.
	mostSelectors = 1000
)

// CacheObjects keep of ResourceSlices only that they have changed.
func CacheObjects() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&resourceapi.ResourceSlice{}: {Transform: trimSlice}}
}

// trimSlice keeps the node of a slice.
func trimSlice(o any) (any, error) {
	s, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	out := &metav1.PartialObjectMetadata{TypeMeta: s.TypeMeta}
	out.Name, out.UID, out.ResourceVersion = s.Name, s.UID, s.ResourceVersion
	for _, owner := range s.OwnerReferences {
		if owner.Kind == "Node" {
			out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: owner.Kind, Name: owner.Name})
		}
	}
	return out, nil
}

// New makes a Reconciler. judge has a node judged, and look a pod looked at.
func New(c client.Client, reader, pods client.Reader, o Options, judge, look func(reconcile.Request)) *Reconciler {
	r := &Reconciler{
		Client: c, Reader: reader, Pods: pods, Clock: o.Clock, After: o.After, HasRules: true, JudgeSoon: judge, LookSoon: look,
		Limiter: rate.NewLimiter(rate.Limit(o.PerSecond), max(1, int(o.PerSecond))), Effort: rate.NewLimiter(effort, effortAtOnce),
		memory: newMemory(), compiled: allocation.NewCache(mostSelectors),
	}
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	r.metrics = newMetrics(o.Registry, r.memory)
	return r
}

// Setup adds the controllers of pods and nodes to a manager. They use the index of claims by node that
// package controller makes.
func Setup(mgr manager.Manager, o Options) error {
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Field: fields.SelectorFromSet(fields.Set{"status.phase": string(corev1.PodPending), "spec.nodeName": ""}), Transform: trimPod,
		}},
	})
	if err != nil {
		return fmt.Errorf("prepare the cache of pods that wait: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return fmt.Errorf("add the cache of pods that wait: %w", err)
	}
	var judged, looked queue.Queue
	soon := func(q *queue.Queue) func(reconcile.Request) {
		return func(request reconcile.Request) { q.Add(priorityqueue.AddOpts{}, request) }
	}
	r := New(mgr.GetClient(), mgr.GetAPIReader(), pods, o, soon(&judged), soon(&looked))
	if r.HasRules, err = cluster.ServesRules(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := builder.ControllerManagedBy(mgr).Named("waitingpods").
		WatchesRawSource(looked.Source()).
		WatchesRawSource(source.Kind[client.Object](pods, &corev1.Pod{}, &handler.EnqueueRequestForObject{}, predicate.Funcs{UpdateFunc: podChanged})).
		Watches(&resourceapi.ResourceClaim{}, handler.EnqueueRequestsFromMapFunc(r.podsOfClaim)).
		Watches(&resourceapi.DeviceClass{}, handler.EnqueueRequestsFromMapFunc(r.allPods), changed).
		Complete(reconcile.Func(r.reconcilePod)); err != nil {
		return fmt.Errorf("add the controller of pods that wait: %w", err)
	}
	b := builder.ControllerManagedBy(mgr).Named("waitingnodes").
		WatchesRawSource(judged.Source()).
		Watches(&v1alpha1.GPUNode{}, r.nodesFrom(func(o client.Object) []string { return []string{o.GetName()} }), changed).
		Watches(&corev1.Node{}, r.nodesFrom(func(o client.Object) []string { return []string{o.GetName()} }), builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&resourceapi.ResourceClaim{}, r.nodesFrom(drain.NodesOf), changed).
		Watches(&resourceapi.DeviceClass{}, r.nodesFrom(r.everyNode), changed).
		WatchesMetadata(&resourceapi.ResourceSlice{}, r.nodesFrom(nodeOfSlice), changed)
	if r.HasRules {
		b = b.Watches(&resourceapi.DeviceTaintRule{}, r.nodesFrom(r.nodesOfRule), changed)
	}
	if err := b.Complete(reconcile.Func(r.reconcileNode)); err != nil {
		return fmt.Errorf("add the controller of nodes that pods wait for: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(r.Tell)); err != nil {
		return fmt.Errorf("add what tells pods why they wait: %w", err)
	}
	return nil
}

// changed leaves out what is only listed again.
var changed = builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})

// podChanged tells whether something of a pod has changed that the cache keeps.
func podChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Pod)
	now, ok2 := e.ObjectNew.(*corev1.Pod)
	if !ok || !ok2 {
		return true
	}
	same := *now
	same.ResourceVersion = before.ResourceVersion
	return !equality.Semantic.DeepEqual(before, &same)
}

// nodeChanged tells whether something of a node has changed that decides which pods it takes.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	now, ok2 := e.ObjectNew.(*corev1.Node)
	if !ok || !ok2 {
		return true
	}
	same := equality.Semantic.DeepEqual
	return !same(before.Labels, now.Labels) || before.Spec.Unschedulable != now.Spec.Unschedulable ||
		!same(before.Spec.Taints, now.Spec.Taints) || !same(before.Status.Allocatable, now.Status.Allocatable)
}

// nodesFrom makes requests for nodes, as long as pods wait for one.
func (r *Reconciler) nodesFrom(names func(client.Object) []string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if r.memory.idle() {
			return nil
		}
		var out []reconcile.Request
		for _, name := range names(o) {
			r.memory.changed(name)
			out = append(out, requestFor(name))
		}
		return out
	})
}

func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

func (r *Reconciler) everyNode(client.Object) []string {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	names, err := r.nodes(ctx)
	if err != nil {
		return nil // the cache is not filled: they are judged later
	}
	return names
}

func (r *Reconciler) nodesOfRule(o client.Object) []string {
	rule, ok := o.(*resourceapi.DeviceTaintRule)
	if !ok {
		return nil
	}
	if node, all := nodesOf(rule); !all {
		return []string{node}
	}
	return r.everyNode(o)
}

func nodeOfSlice(o client.Object) []string {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Node" {
			return []string{owner.Name}
		}
	}
	return nil
}

func (r *Reconciler) podsOfClaim(_ context.Context, o client.Object) []reconcile.Request {
	return requestsFor(r.memory.podsOf(client.ObjectKeyFromObject(o)))
}

func (r *Reconciler) allPods(context.Context, client.Object) []reconcile.Request {
	return requestsFor(r.memory.all())
}

func requestsFor(names []types.NamespacedName) []reconcile.Request {
	out := make([]reconcile.Request, 0, len(names))
	for _, n := range names {
		out = append(out, reconcile.Request{NamespacedName: n})
	}
	return out
}
