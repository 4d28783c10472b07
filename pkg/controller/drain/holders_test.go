package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const gpuA = "gpu-0000-01-00-0"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func webPod() Holder {
	return Holder{
		Claim: types.NamespacedName{Namespace: "team", Name: "web-gpu"}, Devices: []string{gpuA + "-mig-1g-10gb-0"},
		Pod: &Pod{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "u1"},
	}
}

func TestClaimsOfAPod(t *testing.T) {
	pod := &corev1.Pod{}
	assert.Empty(t, claimsOf(pod))
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "a", ResourceClaimName: ptr.To("shared")}, {Name: "b", ResourceClaimTemplateName: ptr.To("template")}, {Name: "c", ResourceClaimTemplateName: ptr.To("optional")},
	}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: ptr.To("pod-b-x7")}, {Name: "c"}}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "pod-extended"}
	assert.Equal(t, []string{"pod-b-x7", "pod-extended", "shared"}, claimsOf(pod))
}

// Who may create a claim can write any owner, and a second pod can name the claim that
// was made for a first one.
func TestAClaimIsOfOnePodIfNobodyElseUsesIt(t *testing.T) {
	owner := func(uids ...types.UID) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{}
		for _, uid := range uids {
			c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", UID: uid})
		}
		return c
	}
	for name, tt := range map[string]struct {
		claim *resourceapi.ResourceClaim
		users []types.UID
		want  bool
	}{
		"its owner uses it":             {owner("a"), []types.UID{"a", "a"}, true},
		"nobody uses it yet":            {owner("a"), nil, true},
		"no owner":                      {owner(), []types.UID{"a"}, false},
		"an owner that does not use it": {owner("x"), []types.UID{"a"}, false},
		"a second pod":                  {owner("a"), []types.UID{"a", "b"}, false},
		"every pod is written as owner": {owner("a", "b"), []types.UID{"a"}, false},
		"a Pod of another API":          {&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Pod", UID: "a"}}}}, []types.UID{"a"}, false},
		"the owner is of another kind":  {&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", UID: "a"}}}}, []types.UID{"a"}, false},
	} {
		assert.Equal(t, tt.want, ofOnePod(tt.claim, tt.users), name)
	}
}

func TestWhatAHolderIsSaidToDo(t *testing.T) {
	for text, change := range map[string]func(*Holder){
		"pod team/web (" + gpuA + "-mig-1g-10gb-0)":                                            func(*Holder) {},
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) has ended, and its claim is being released": func(h *Holder) { h.Pod.Over = true },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) is ending, and has 30 s for it":             func(h *Holder) { h.Pod.Ending, h.Pod.Grace = ptr.To(noon), 30 },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) is ending, and finalizers keep it: a":       func(h *Holder) { h.Pod.Ending, h.Pod.Finalizers = ptr.To(noon), []string{"a"} },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) should have been gone by 11:59:54 UTC: do the node's kubelet and its plugin run, and what do the pod's events say?": func(h *Holder) {
			h.Pod.Ending, h.Pod.Grace, h.Pod.Over = ptr.To(noon.Add(-6*time.Second)), 30, true
		},
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) is not evicted: no":                              func(h *Holder) { h.Pod.Refused = "no" },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0); its claim tolerates the taint":                  func(h *Holder) { h.Tolerates = true },
		"jobs team/x holds " + gpuA + "-mig-1g-10gb-0 for claim team/web-gpu and cannot be evicted": func(h *Holder) { h.Pod, h.Other = nil, "jobs team/x" },
	} {
		h := webPod()
		change(&h)
		assert.Equal(t, text, h.Text(noon))
	}
}
