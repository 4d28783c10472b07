package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/pkg/web/view"
)

// The kinds by which gaps are known.
const (
	kindSlices   = "ResourceSlices"
	kindClaims   = "ResourceClaims"
	kindClasses  = "DeviceClasses"
	kindRules    = "DeviceTaintRules"
	kindNodes    = "Nodes"
	kindGPUNodes = "GPUNodes"
	kindPlans    = "PartitionPlans"
	kindPods     = "Pods"
)

// Source is where objects are read, with the rights of its clients.
type Source struct {
	Kubernetes kubernetes.Interface
	Ours       client.Interface
	// Namespace is read if claims and pods of all namespaces may not be.
	Namespace string
}

const (
	// again is how long to wait after an error, forbidden after a refusal.
	again, forbidden = 2 * time.Second, time.Minute
)

// watched is a kind that is followed.
type watched struct {
	what, means string
	example     runtime.Object
	store       cache.ReflectorStore
	// of returns list and watch of a namespace; the kinds of the cluster ignore it.
	of         func(namespace string) cache.ListerWatcher
	namespaced bool
	// optional: a cluster that does not serve the kind has no objects of it.
	optional bool
}

// Follow keeps the store up to date until ctx ends.
func (s *Store) Follow(ctx context.Context, from Source) {
	all := s.kinds(from)
	s.mu.Lock()
	for _, k := range all {
		s.unread[k.what] = true
	}
	s.mu.Unlock()
	var running sync.WaitGroup
	for _, k := range all {
		running.Go(func() { s.follow(ctx, k, from.Namespace) })
	}
	running.Go(func() { s.Run(ctx) })
	running.Wait()
}

func (s *Store) kinds(from Source) []watched {
	k := from.Kubernetes
	r := k.ResourceV1()
	driver := fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, names.DriverName).String()
	pending := "status.phase=Pending,spec.nodeName="
	cluster := func(lw cache.ListerWatcher) func(string) cache.ListerWatcher {
		return func(string) cache.ListerWatcher { return lw }
	}
	return []watched{
		{what: kindSlices, means: "GPUs are not shown.", example: &resourceapi.ResourceSlice{}, store: s.slices, of: cluster(client.ListWatchOf(k, r.ResourceSlices().List, r.ResourceSlices().Watch, metav1.ListOptions{FieldSelector: driver}))},
		{what: kindClaims, means: "Holders and free capacity are not shown.", example: &resourceapi.ResourceClaim{}, store: s.claims, namespaced: true, of: func(ns string) cache.ListerWatcher {
			return client.ListWatchOf(k, r.ResourceClaims(ns).List, r.ResourceClaims(ns).Watch, metav1.ListOptions{})
		}},
		{what: kindPods, means: "Pods that wait for an extended resource are not shown.", example: &corev1.Pod{}, store: s.pods, namespaced: true, of: func(ns string) cache.ListerWatcher {
			return client.ListWatchOf(k, k.CoreV1().Pods(ns).List, k.CoreV1().Pods(ns).Watch, metav1.ListOptions{FieldSelector: pending})
		}},
		{what: kindClasses, means: "Which class asks for a profile is not known.", example: &resourceapi.DeviceClass{}, store: s.classes, of: cluster(client.ListWatchOf(k, r.DeviceClasses().List, r.DeviceClasses().Watch, metav1.ListOptions{}))},
		{what: kindRules, means: "Taints that they add are not shown.", optional: true, example: &resourceapi.DeviceTaintRule{}, store: s.rules, of: cluster(client.ListWatchOf(k, r.DeviceTaintRules().List, r.DeviceTaintRules().Watch, metav1.ListOptions{}))},
		{what: kindNodes, means: "Whether a node is ready is not shown.", example: &corev1.Node{}, store: s.nodes, of: cluster(client.ListWatchOf(k, k.CoreV1().Nodes().List, k.CoreV1().Nodes().Watch, metav1.ListOptions{}))},
		{what: kindGPUNodes, means: "Profiles, switches and problems of GPUs are not shown.", optional: true, example: &v1alpha1.GPUNode{}, store: s.gpuNodes, of: cluster(client.ListWatch(from.Ours.GPUNodes(), ""))},
		{what: kindPlans, means: "Rollouts are not shown.", optional: true, example: &v1alpha1.PartitionPlan{}, store: s.plans, of: cluster(client.ListWatch(from.Ours.PartitionPlans(), ""))},
	}
}

// follow lists and watches a kind again and again. Without the right to watch it lists.
func (s *Store) follow(ctx context.Context, k watched, fallback string) {
	namespace := metav1.NamespaceAll
	for ctx.Err() == nil {
		gap := view.Gap{What: k.what, Means: k.means}
		if namespace != "" {
			gap.Reason = fmt.Sprintf("you are allowed to list %s in the namespace %s only", k.what, namespace)
		}
		lw := k.of(namespace)
		noted := &noting{store: k.store, read: func() { s.gap(gap) }}
		err := cache.NewReflectorWithOptions(lw, k.example, noted, cache.ReflectorOptions{Name: "web", TypeDescription: k.what}).ListAndWatchWithContext(ctx)
		wait := again
		switch {
		case err == nil || noted.listed && !apierrors.IsForbidden(err):
		case noted.listed:
			wait = 5 * again // it may list, and not watch
		case k.optional && apierrors.IsNotFound(err):
			_ = k.store.Replace(nil, "") // of nothing, it cannot fail
			gap.Reason = ""
			s.gap(gap)
			wait = forbidden
		case apierrors.IsForbidden(err) && k.namespaced && namespace == "" && fallback != "":
			namespace = fallback
			continue
		default:
			gap.Reason = reason(err, k.what)
			s.gap(gap)
			if apierrors.IsForbidden(err) {
				namespace, wait = metav1.NamespaceAll, forbidden
			}
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

// reason says why a kind cannot be read.
func reason(err error, what string) string {
	if apierrors.IsForbidden(err) {
		return "you are not allowed to list " + what
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// noting notes that a kind was listed.
type noting struct {
	store  cache.ReflectorStore
	read   func()
	listed bool
}

func (n *noting) Add(o any) error    { return n.store.Add(o) }
func (n *noting) Update(o any) error { return n.store.Update(o) }
func (n *noting) Delete(o any) error { return n.store.Delete(o) }
func (n *noting) Resync() error      { return nil }

// Replace implements cache.ReflectorStore.
func (n *noting) Replace(all []any, version string) error {
	err := n.store.Replace(all, version)
	if err == nil {
		n.listed = true
		n.read()
	}
	return err
}

// Transformer implements cache.TransformingStore.
func (n *noting) Transformer() cache.TransformFunc {
	if t, ok := n.store.(cache.TransformingStore); ok {
		return t.Transformer()
	}
	return nil
}
