package controller

import (
	"context"
	"fmt"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// The scheduler gives a pod whose claim has a device already to that device, whatever
// its taints. A Deployment makes the next pod while the one before ends, so the claim is
// never given up.
func TestPodsThatShareAClaimDoNotComeBack(t *testing.T) {
	w, _ := begun(t)
	w.pod("node-a", "shared-0", gpuA, gpuA, func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
		p.Finalizers = []string{"it/takes-a-while"}
		c.OwnerReferences = nil
	})
	pods := 0
	w.evict = func(name types.NamespacedName) error {
		if name.Name == "web" || hasNodeTaint(w.node("node-a")) {
			return nil
		}
		pods++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shared-" + string(rune('0'+pods)), UID: types.UID(string(rune('0' + pods)))}}
		pod.Spec.NodeName = "node-a"
		require.NoError(t, w.api.Create(t.Context(), pod))
		var c resourceapi.ResourceClaim
		require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "team", Name: "shared-0-gpu"}, &c))
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		require.NoError(t, w.api.Status().Update(t.Context(), &c))
		return nil
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Draining))
	assert.True(t, n.Status.Switch.NodeTaintRequired)
	assert.Contains(t, ready(n).Message, "taints the node, because device taints would not keep all new pods off")
	w.round("node-a")
	assert.True(t, hasNodeTaint(w.node("node-a")))
	var first corev1.Pod
	require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "team", Name: "shared-0"}, &first))
	assert.NotNil(t, first.DeletionTimestamp)
	first.Finalizers = nil
	require.NoError(t, w.api.Update(t.Context(), &first))
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.Zero(t, pods)
}

// The pod that replaces one whose claim tolerates every taint would get a tainted device,
// be evicted in its turn, and so on until the drain's deadline.
func TestAClaimThatToleratesTheTaintDoesNotComeBack(t *testing.T) {
	for _, admin := range []bool{false, true} {
		w, n := begun(t)
		tolerant := func(_ *corev1.Pod, c *resourceapi.ResourceClaim) {
			result := &c.Status.Allocation.Devices.Results[0]
			result.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
			result.AdminAccess = ptr.To(admin)
		}
		w.pod("node-a", "tolerant", gpuA, gpuA+"-mig-1g-10gb-6", tolerant)
		back := 0
		w.evict = func(pod types.NamespacedName) error {
			free := slices.ContainsFunc(n.devices(w, gpuA), func(d resourceapi.Device) bool { return d.Name == gpuA })
			if strings.HasPrefix(pod.Name, "tolerant") && free {
				back++
				w.pod("node-a", fmt.Sprint("tolerant-", back), gpuA, gpuA, tolerant)
			}
			return nil
		}
		w.wants("node-a", "cpx")
		got := w.run("node-a", 5*time.Minute, inProfile("cpx"))
		assert.Zero(t, back)
		w.stays(got, "cpx")
		assert.Empty(t, n.withheld, "everything is published again")
	}
}

// A GPU is not changed under a pod that the cache does not know of yet: its claim would
// have devices that there are no more.
func TestAPodWhoseClaimTheCacheDoesNotKnowYet(t *testing.T) {
	for name, reserved := range map[string][]resourceapi.ResourceClaimConsumerReference{
		"a claim":                          {{Resource: "pods", Name: "late", UID: "pod-late"}},
		"a claim for an extended resource": {},
		"a claim for a pod group":          {{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "late", UID: "group"}},
		"not reserved for it yet":          {},
		"reserved for another one":         {{Resource: "pods", Name: "gone", UID: "gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := idle(t)
			w.wants("node-a", "cpx")
			w.round("node-a") // It is admitted.
			w.freeze()
			w.pod("node-a", "late", gpuA, gpuA, func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}}
				p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To(c.Name)}}
				if name == "a claim for an extended resource" {
					p.Spec.ResourceClaims, p.Status.ResourceClaimStatuses = nil, nil
					p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name}
				}
				c.Status.ReservedFor = reserved
			})
			w.evict = refuse("no")
			w.run("node-a", time.Minute, is(v1beta1.Draining))
			w.passes(5, time.Second, "node-a")
			assert.Equal(t, v1beta1.Draining, w.gpuNode("node-a").Status.State)
			assert.Contains(t, ready(w.gpuNode("node-a")).Message, "pod team/late ("+gpuA+")")
		})
	}
}

func TestPodsWithClaimsOfOtherDriversCostNothing(t *testing.T) {
	w := idle(t)
	w.pod("node-a", "nic", gpuA, gpuA, func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic", ResourceClaimName: ptr.To(c.Name)}}
		c.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
	})
	d := w.r.drainer
	d.Reader = onlyPods{d.Reader, t}
	holders, err := d.On("node-a").Holders(t.Context(), []string{gpuA}, nil)
	require.NoError(t, err)
	assert.Empty(t, holders)
}

// onlyPods has nothing but pods read.
type onlyPods struct {
	client.Reader
	t *testing.T
}

func (o onlyPods) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	assert.IsType(o.t, &corev1.Pod{}, into)
	return o.Reader.Get(ctx, key, into, opts...)
}
