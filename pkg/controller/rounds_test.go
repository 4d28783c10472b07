package controller

import (
	"cmp"
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// round lets the controller look at a node, and its plugin. It returns when the
// controller wants to look again.
func (w *world) round(node string) time.Duration {
	// A log of every step of a thousand switches helps nobody.
	ctx := klog.NewContext(w.t.Context(), logr.Discard())
	result, err := w.r.Reconcile(ctx, requestFor(node))
	if !w.byHand && w.decide(node) {
		w.lastErr = cmp.Or(err, w.lastErr)
		result, err = w.r.Reconcile(ctx, requestFor(node))
	}
	w.mu.Lock()
	if err == nil {
		delete(w.retry, node)
	} else {
		w.lastErr = err
		w.retry[node] = min(max(firstErrorRetry, 2*w.retry[node]), lastErrorRetry)
		result.RequeueAfter = w.retry[node]
	}
	w.mu.Unlock()
	if n := w.nodes[node]; n != nil {
		n.plugin(w)
	}
	return result.RequeueAfter
}

// decide has the plans decided, and reports whether the controller wants to look at a node: its
// GPUNode was written, or the decision wakes it.
func (w *world) decide(node string) bool {
	before := w.version(node)
	if _, err := w.r.decidePlans(klog.NewContext(w.t.Context(), logr.Discard()), allPlans); err != nil {
		w.lastErr = err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	woken := w.woken[node]
	delete(w.woken, node)
	return woken || w.version(node) != before
}

// version is the version of a GPUNode.
func (w *world) version(node string) string {
	var g v1beta1.GPUNode
	_ = w.api.Get(w.t.Context(), client.ObjectKey{Name: node}, &g)
	return g.ResourceVersion
}

// passes lets time pass in steps, and a node or, if it is empty, all have a round in each.
func (w *world) passes(steps int, each time.Duration, node string) {
	for range steps {
		if node == "" {
			w.all()
		} else {
			w.round(node)
		}
		w.clock.Step(each)
	}
}

// run lets time pass until the node is as it should be, at the pace that the
// controller asks for.
func (w *world) run(node string, long time.Duration, done func(*v1beta1.GPUNode) bool) *v1beta1.GPUNode {
	w.t.Helper()
	end := w.clock.Now().Add(long)
	for {
		wait := w.round(node)
		n := w.gpuNode(node)
		if done(n) {
			if rests := n.Status.State == v1beta1.Idle || n.Status.State == v1beta1.Failed; rests && w.busy(node) {
				w.round(node) // the plugin has removed the taints
			}
			return n
		}
		if !w.clock.Now().Before(end) {
			require.Failf(w.t, "it does not come to it", "after %s node %s is %s: %s; last error: %v", long, node, n.Status.State, ready(n).Message, w.lastErr)
		}
		w.clock.Step(w.pause(node, wait))
	}
}

// pause is how much time passes before the next round: as much as the controller asks
// for, but a second at the most where the plugin is about to say something.
func (w *world) pause(node string, wait time.Duration) time.Duration {
	longest := 10 * time.Second
	if n := w.nodes[node]; n != nil && !n.dead && (n.changed || w.clock.Now().Sub(n.since) <= max(n.slow, settles)) {
		longest = time.Second
	}
	if wait == 0 || wait > longest {
		return longest
	}
	return wait
}

func ready(n *v1beta1.GPUNode) *metav1.Condition {
	if c := meta.FindStatusCondition(n.Status.Conditions, names.ConditionReady); c != nil {
		return c
	}
	return &metav1.Condition{}
}

func inProfile(name string) func(*v1beta1.GPUNode) bool {
	return func(n *v1beta1.GPUNode) bool {
		return n.Status.State == v1beta1.Idle && n.Status.Applied != nil && n.Status.Applied.ProfileName == name &&
			n.Status.Node != nil && n.Status.Node.AppliedHash == n.Status.Applied.Hash
	}
}

func is(state v1beta1.State) func(*v1beta1.GPUNode) bool {
	return func(n *v1beta1.GPUNode) bool { return n.Status.State == state }
}

// clean checks that nothing of ours is left on a node.
func (w *world) clean(node string) {
	w.t.Helper()
	if n := w.nodes[node]; n != nil && !n.dead && !n.quick {
		n.plugin(w)
		assert.Empty(w.t, w.taintedGPUs(node), "devices are tainted")
	}
	n := w.node(node)
	assert.False(w.t, leftover(n, DefaultPauseLabels), "taints %v, labels %v", n.Spec.Taints, n.Labels)
}

// freeze has the controller's caches stay as they are now, until thaw.
func (w *world) freeze() {
	var objects []client.Object
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &corev1.PodList{}, &resourceapi.ResourceClaimList{}, &resourceapi.ResourceSliceList{}, &resourceapi.DeviceClassList{},
		&v1beta1.GPUNodeList{}, &v1beta1.PartitionProfileList{}, &v1beta1.PartitionPlanList{},
	} {
		require.NoError(w.t, w.api.List(w.t.Context(), list))
		require.NoError(w.t, meta.EachListItem(list, func(o runtime.Object) error {
			objects = append(objects, o.DeepCopyObject().(client.Object))
			return nil
		}))
	}
	w.stale = newAPI(w.api.Scheme(), objects...)
}

func (w *world) thaw() { w.stale = nil }

// cached answers what the controller asks its caches, where they are late.
func (w *world) cached() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if w.stale != nil {
				c = w.stale
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if w.stale != nil {
				c = w.stale
			}
			return c.List(ctx, l, opts...)
		},
	}
}
