package why_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/nodes"
)

var now = time.Date(2026, 11, 20, 3, 14, 0, 0, time.UTC)

const (
	wholeGPU = "gpu.tranche.dev"
	small    = "gpu-mig-1g-10gb.tranche.dev"
	three    = "gpu-mig-3g-40gb.tranche.dev"
	cpx      = "gpu-xcp-cpx.tranche.dev"
	dpx      = "gpu-xcp-dpx.tranche.dev"
)

// world is a cluster in memory: what a plugin publishes for simulated GPUs, the
// classes of the chart, and the scheduler's allocator to fill it.
type world struct {
	t         testing.TB
	in        why.Input
	scheduler *allocator.Scheduler
	published []*resourceapi.ResourceSlice
}

func newWorld(t testing.TB) *world {
	t.Helper()
	classes, err := allocator.Classes("../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	w := &world{t: t, scheduler: allocator.New(classes, nil)}
	w.in = why.Input{Templates: []resourceapi.ResourceClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}}}
	w.in.Now = now
	for _, c := range classes {
		w.in.Classes = append(w.in.Classes, *c)
	}
	return w
}

// node adds a node with GPUs; what says of a GPU may be changed before it is
// published.
func (w *world) node(name, model string, count int, change ...func(*publish.GPU)) *world {
	w.t.Helper()
	published, err := nodes.OfModel(name, model, count, func(_ int, g *publish.GPU) {
		for _, f := range change {
			f(g)
		}
	})
	require.NoError(w.t, err)
	w.published = append(w.published, published...)
	for _, s := range published {
		w.in.Slices = append(w.in.Slices, *s)
	}
	w.scheduler.Publish(w.published)
	w.in.Nodes = append(w.in.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"kubernetes.io/hostname": name},
	}})
	return w
}

// hold lets pods named pod-0, pod-1, … take devices of a class on a node until so
// many have one, or the node is full.
func (w *world) hold(node, namespace, pod, class string, count int) *world {
	w.t.Helper()
	for i := range count {
		name := fmt.Sprintf("%s-%d", pod, i)
		claim := claimOf(namespace, name+"-gpu", request("gpu", class))
		grant, err := w.scheduler.Allocate(w.t.Context(), node, claim)
		require.NoError(w.t, err)
		if grant == nil {
			return w
		}
		w.give(claim, grant.Result, name)
	}
	return w
}

func (w *world) give(claim *resourceapi.ResourceClaim, result resourceapi.AllocationResult, pod string) {
	claim.Status.Allocation = &result
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod}}
	w.in.Claims = append(w.in.Claims, *claim)
}

// pod is the one that is asked about: team-a/pod with one claim.
func (w *world) pod(requests ...resourceapi.DeviceRequest) *corev1.Pod {
	w.in.Claims = append(w.in.Claims, *claimOf("team-a", "pod-gpu-x7k2p", requests...))
	w.in.Pod = podNamed("pod")
	template, claim := "pod", "pod-gpu-x7k2p"
	w.in.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	w.in.Pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim}}
	w.refused("0/1 nodes are available: 1 cannot allocate all claims.")
	return w.in.Pod
}

// placed gives the pod its devices on a node.
func (w *world) placed(node string) *corev1.Pod {
	w.t.Helper()
	i := len(w.in.Claims) - 1
	claim := w.in.Claims[i].DeepCopy()
	grant, err := w.scheduler.Allocate(w.t.Context(), node, claim)
	require.NoError(w.t, err)
	require.NotNil(w.t, grant)
	w.in.Claims = w.in.Claims[:i]
	w.give(claim, grant.Result, "pod")
	w.in.Pod.Spec.NodeName = node
	w.in.Pod.Status.Conditions = nil
	return w.in.Pod
}

func (w *world) claim() *resourceapi.ResourceClaim { return &w.in.Claims[len(w.in.Claims)-1] }

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// refused is what the scheduler wrote into the pod's status.
func (w *world) refused(message string) {
	w.in.Pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
}

func claimOf(namespace, name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c := allocator.Claim(name, requests...)
	c.Namespace = namespace
	controller := true
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "uid-pod", Controller: &controller}}
	return c
}

func request(name, class string) resourceapi.DeviceRequest { return allocator.Request(name, class, 1) }

func warning(kind, name, reason, by, message string) corev1.Event {
	return corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: "team-a", Name: name + "." + reason},
		InvolvedObject:      corev1.ObjectReference{Kind: kind, Name: name},
		Type:                corev1.EventTypeWarning,
		Reason:              reason,
		Message:             message,
		ReportingController: by,
		LastTimestamp:       metav1.NewTime(now.Add(-90 * time.Second)),
		Count:               4,
	}
}

// hide is what the user may not read.
func (w *world) hide(all ...why.Resource) {
	for _, r := range all {
		w.in.Unread = append(w.in.Unread, why.NotRead(r, "you are not allowed to list "+string(r)))
	}
}

func (w *world) explain() *why.Explanation { return why.Explain(w.t.Context(), w.in) }

// requireText compares the text of an explanation with a golden file.
func requireText(t *testing.T, name string, e *why.Explanation) {
	t.Helper()
	var got bytes.Buffer
	require.NoError(t, picture.Screen{Width: 80}.Draw(&got, func(p *picture.Page) { picture.DrawExplanation(p, e, false) }))
	golden.Equal(t, filepath.Join("testdata", name+".txt"), got.String())
}
