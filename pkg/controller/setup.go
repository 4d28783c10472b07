package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/controller/plans"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Options are the options of the controller.
type Options struct {
	// MaxUnavailable is how many nodes may be switched at once: a number or a
	// percentage of the nodes with GPUs.
	MaxUnavailable string
	// MaxFailures is how many nodes may fail with a profile before no more nodes get it that
	// have no plan: a number, or a percentage of them. Empty: 0.
	MaxFailures string
	Deadlines   state.Deadlines
	// Policy has the defaults for profiles.
	Policy      v1beta1.SwitchPolicy
	PauseLabels []string
	// MonitoringNamespaces are the namespaces of the DaemonSets that are paused.
	MonitoringNamespaces []string
	// StartupTaint is the key of the taint that nodes register with and that is removed when
	// their desired profile is applied; empty: none.
	StartupTaint string
	// Labels says which node labels of other projects are followed.
	Labels adopt.Config
	// Workers is how many nodes are reconciled concurrently.
	Workers int
	// Clock is the clock, nil: that of the machine.
	Clock clock.PassiveClock
	// Registry is where metrics are registered.
	Registry prometheus.Registerer
}

// NewScheme has the kinds that the controller works with.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		batchv1.AddToScheme, corev1.AddToScheme, eventsv1.AddToScheme, policyv1.AddToScheme, resourceapi.AddToScheme, v1beta1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// CacheOptions keep in memory only what is needed: labels and taints of nodes, and who holds
// our devices by claims. Pods and slices are not cached.
func (o *Options) CacheOptions() cache.Options {
	kept := map[client.Object]cache.ByObject{
		&corev1.Node{}:               {Transform: trimNode},
		&resourceapi.ResourceClaim{}: {Transform: drain.TrimClaim},
	}
	return cache.Options{
		DefaultTransform:            cache.TransformStripManagedFields(),
		ReaderFailOnMissingInformer: true,
		ByObject:                    kept,
	}
}

// trimNode keeps only what the controller uses of a node. Plans select nodes by any label.
func trimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	out := &corev1.Node{TypeMeta: n.TypeMeta}
	out.Name, out.UID, out.ResourceVersion, out.Labels = n.Name, n.UID, n.ResourceVersion, n.Labels
	out.Spec.Taints, out.Spec.Unschedulable = n.Spec.Taints, n.Spec.Unschedulable
	// What device plugins serve.
	for name, amount := range n.Status.Allocatable {
		if strings.Contains(string(name), "/") {
			if out.Status.Allocatable == nil {
				out.Status.Allocatable = corev1.ResourceList{}
			}
			out.Status.Allocatable[name] = amount
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out, nil
}

// New returns a Reconciler. wake and again are those of plans.Decider.
func New(c client.Client, reader client.Reader, o Options, wake func(node string), again func()) (*Reconciler, error) {
	most, failures, err := ParseLimits(o.MaxUnavailable, o.MaxFailures)
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		Client: c, Reader: reader, Clock: o.Clock,
		Machine: state.Machine{Deadlines: o.Deadlines}, Policy: o.Policy, PauseLabels: o.PauseLabels, MonitoringNamespaces: o.MonitoringNamespaces,
		StartupTaint: o.StartupTaint, Adopter: adopt.New(c, reader, o.Labels),
	}
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	r.Plans = &plans.Decider{Client: c, Reader: reader, Clock: r.Clock, MaxUnavailable: most, MaxFailures: failures, Wake: wake, Again: again}
	r.metrics = newMetrics(o.Registry, r)
	r.drainer = &drain.Drainer{Client: c, Reader: reader, Clock: r.Clock, Count: func(answer string) { r.metrics.evictions.WithLabelValues(answer).Inc() }}
	return r, nil
}

// Setup adds the controller to a manager.
func Setup(ctx context.Context, mgr manager.Manager, o Options) error {
	var nodes, decisions requests
	r, err := New(mgr.GetClient(), mgr.GetAPIReader(), o, nodes.wake, decisions.decide)
	if err != nil {
		return err
	}
	r.Events = mgr.GetEventRecorder(names.ControllerName)
	r.Plans.Events, r.Adopter.Events = r.Events, r.Events
	if err := mgr.GetFieldIndexer().IndexField(ctx, &resourceapi.ResourceClaim{}, drain.NodeIndex, drain.NodesOf); err != nil {
		return fmt.Errorf("index the ResourceClaims by node: %w", err)
	}
	if err := r.fillCaches(ctx, mgr.GetCache()); err != nil {
		return err
	}
	changed, err := r.Adopter.Watch(ctx, mgr)
	if err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.lead)); err != nil {
		return fmt.Errorf("add the start of leadership to the manager: %w", err)
	}
	b := builder.ControllerManagedBy(mgr).Named("gpunode").
		For(&v1beta1.GPUNode{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.requestsForNode)).
		Watches(&v1beta1.PartitionProfile{}, afterStart(r.requestsForProfile)).
		Watches(&resourceapi.ResourceClaim{}, afterStart(r.requestsForClaim)).
		WatchesRawSource(nodes.Source()).
		WatchesRawSource(source.Channel(changed, handler.EnqueueRequestsFromMapFunc(r.requestsForConfigMap))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers,
			RateLimiter:             retries(),
		})
	if err := b.Complete(r); err != nil {
		return err
	}
	return r.setupPlans(mgr, &decisions)
}

// fillCaches fills the caches before the controller leads, so that a new leader continues at
// once.
func (r *Reconciler) fillCaches(ctx context.Context, c cache.Cache) error {
	objects := []client.Object{&v1beta1.GPUNode{}, &v1beta1.PartitionProfile{}, &v1beta1.PartitionPlan{}, &corev1.Node{}, &resourceapi.ResourceClaim{}, &resourceapi.DeviceClass{}}
	for _, o := range objects {
		if _, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch objects of type %T: %w", o, err)
		}
	}
	return nil
}

// retries returns the waits after errors. Reconciliation resumes soon after an outage of the API
// server.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstErrorRetry, lastErrorRetry)
}

// afterStart maps objects that change after the controller has started. All nodes are reconciled
// when it starts.
func afterStart(of handler.MapFunc) handler.EventHandler {
	mapped := handler.EnqueueRequestsFromMapFunc(of)
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if !e.IsInInitialList {
				mapped.Create(ctx, e, q)
			}
		},
		UpdateFunc: mapped.Update, DeleteFunc: mapped.Delete,
	}
}

// requestsForNode returns requests for nodes that have a GPUNode, our taint or paused monitoring pods.
func (r *Reconciler) requestsForNode(ctx context.Context, o client.Object) []reconcile.Request {
	node, ok := o.(*corev1.Node)
	if !ok {
		return nil
	}
	if !leftover(node, r.PauseLabels) {
		var gpuNode v1beta1.GPUNode
		if err := r.Client.Get(ctx, client.ObjectKey{Name: node.Name}, &gpuNode); err != nil {
			return nil
		}
	}
	return []reconcile.Request{requestFor(node.Name)}
}

// requestsForProfile returns requests for all nodes: each may follow the profile that changed.
func (r *Reconciler) requestsForProfile(ctx context.Context, _ client.Object) []reconcile.Request {
	var all v1beta1.GPUNodeList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	return lists.Map(all.Items, func(g v1beta1.GPUNode) reconcile.Request { return requestFor(g.Name) })
}

// requestsForConfigMap reports what is wrong with the ConfigMaps of other projects, and returns requests
// for all nodes: each may name something in them.
func (r *Reconciler) requestsForConfigMap(ctx context.Context, o client.Object) []reconcile.Request {
	r.Adopter.Report(ctx)
	return r.requestsForProfile(ctx, o)
}

// requestsForClaim returns requests for nodes of a claim that are being switched, or whose switch failed
// because of blockers: they wait for claims to be released.
func (r *Reconciler) requestsForClaim(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, node := range drain.NodesOf(o) {
		var gpuNode v1beta1.GPUNode
		if err := r.Client.Get(ctx, client.ObjectKey{Name: node}, &gpuNode); err != nil {
			continue
		}
		switch s := &gpuNode.Status; {
		case s.RequestsTaints():
		case blocked(s):
			r.memory.lookSoon(node)
		default:
			continue
		}
		requests = append(requests, requestFor(node))
	}
	return requests
}
