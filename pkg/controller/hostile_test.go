package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/short"
)

// hostile is a tenant who wants to have others evicted. Its pods take what the scheduler would
// give them, leave when they like, and come back.
type hostile struct {
	*world
	node       *fakeNode
	rand       *rand.Rand
	toleration resourceapi.DeviceToleration
	// slow pods end only when the tenant wants.
	slow bool
	// shared: the pods share a claim that outlives them, and tolerate taints of nodes.
	shared bool
	// budget: a budget keeps the pods, which refuses asks.
	budget  bool
	refuses func(types.NamespacedName) error

	pods, victims, victimsEvicted int
}

// mostPods is how many pods the tenant makes.
const mostPods = 40

const theirs, ours = gpuA + "-mig-1g-10gb-6", gpuA + deviceOf

// free reports whether the scheduler would allocate a device for a toleration.
func (h *hostile) free(device string, toleration *resourceapi.DeviceToleration) bool {
	published := h.node.devices(h.world, gpuA)
	i := slices.IndexFunc(published, func(d resourceapi.Device) bool { return d.Name == device })
	if i < 0 || slices.Contains(h.node.held(h.world, gpuA), device) {
		return false
	}
	for _, taint := range published[i].Taints {
		if toleration == nil || !resourceclaim.ToleratesTaint(*toleration, taint) {
			return false
		}
	}
	return true
}

// newPod lets the tenant's Deployment make a pod if none is there that is not ending.
func (h *hostile) newPod() {
	if h.shared && h.pods > 0 {
		h.join()
		return
	}
	// A node that changes a GPU admits no pods to it.
	if changing := h.gpuNode("node-a").Status.State; changing == v1beta1.Applying || changing == v1beta1.RollingBack || !h.free(theirs, &h.toleration) {
		return
	}
	h.pods++
	h.pod("node-a", fmt.Sprint("theirs-", h.pods), gpuA, theirs, func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
		if h.slow { // It takes what it was given to end, and more.
			p.Finalizers = []string{"example.com/slow"}
		}
		if h.shared {
			c.OwnerReferences = nil
		}
		c.Status.Allocation.Devices.Results[0].Tolerations = []resourceapi.DeviceToleration{h.toleration}
	})
}

// join adds a pod to the claim that the first one had. It tolerates taints of nodes.
func (h *hostile) join() {
	var c resourceapi.ResourceClaim
	require.NoError(h.t, h.api.Get(h.t.Context(), client.ObjectKey{Namespace: "team", Name: "theirs-1-gpu"}, &c))
	h.pods++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("theirs-", h.pods)}}
	pod.UID, pod.Spec.NodeName = types.UID("pod-"+pod.Name), "node-a"
	require.NoError(h.t, h.api.Create(h.t.Context(), pod))
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	require.NoError(h.t, h.api.Status().Update(h.t.Context(), &c))
}

// acts does what the tenant may do at any time: its budget lets its pods go in dry runs only, and
// they end once the switch has failed.
func (h *hostile) acts() {
	switch h.gpuNode("node-a").Status.State {
	case v1beta1.Draining:
		if h.budget {
			h.refuses = onlyFor(fmt.Sprint("theirs-", h.pods))
		}
	case v1beta1.Failed:
		h.refuses = nil
		h.releases()
	}
	if h.pods < mostPods && h.rand.IntN(2) == 0 {
		h.newPod()
	}
}

// releases lets the tenant's pods that are ending end.
func (h *hostile) releases() {
	var pods corev1.PodList
	require.NoError(h.t, h.api.List(h.t.Context(), &pods))
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp != nil {
			p.Finalizers = nil
			require.NoError(h.t, h.api.Update(h.t.Context(), p))
		}
	}
}

// leaves counts the evictions of the victim's pods, and has the tenant's next pod come at once.
func (h *hostile) leaves(name types.NamespacedName) error {
	if strings.HasPrefix(name.Name, "victim") {
		h.victimsEvicted++
		return nil
	}
	if h.refuses != nil {
		if err := h.refuses(name); err != nil {
			return err
		}
	}
	if h.pods < mostPods {
		h.newPod()
	}
	return nil
}

// A tenant can write tolerations, budgets, finalizers and claims that outlive pods, and delete and
// create pods at any time. Others' pods are evicted once for a switch, whatever the tenant does.
func TestNothingATenantWritesRepeatsAnEviction(t *testing.T) {
	const value = "cpx"
	for seed := range uint64(short.Of(4, 16)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := &hostile{world: w, rand: rand.New(rand.NewPCG(seed, 31))}
			pick := func(from ...string) string { return from[h.rand.IntN(len(from))] }
			h.toleration = resourceapi.DeviceToleration{
				Key: pick("", names.TaintSwitching, names.TaintSwitching, "example.com/other"), Operator: resourceapi.DeviceTolerationOperator(pick("", "Equal", "Exists")),
				Value: pick("", value, value, "old"), Effect: resourceapi.DeviceTaintEffect(pick("", "NoSchedule", "NoExecute")),
			}
			h.slow, h.shared, h.budget = h.rand.IntN(2) == 0, h.rand.IntN(4) == 0, h.rand.IntN(2) == 0
			h.node = w.addNode("node-a")
			w.profile("old")
			w.wants("node-a", "old")
			w.settled("node-a", "old")
			w.profile("cpx")
			h.newPod()
			w.evict = h.leaves
			w.wants("node-a", "cpx")
			end := w.clock.Now().Add(time.Hour)
			for w.clock.Now().Before(end) && !inProfile("cpx")(w.gpuNode("node-a")) {
				if h.free(ours, nil) && !hasNodeTaint(w.node("node-a")) {
					h.victims++
					w.pod("node-a", fmt.Sprint("victim-", h.victims), gpuA, ours)
				}
				h.acts()
				w.clock.Step(min(max(w.round("node-a"), time.Second), time.Minute))
			}
			assert.LessOrEqual(t, h.victimsEvicted, 1, "toleration %+v, slow %v, shared %v, budget %v, state %s", h.toleration, h.slow, h.shared, h.budget, w.gpuNode("node-a").Status.State)
		})
	}
}
