package why_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/pending"
)

// TestScheduled: pods that have a node.
func TestScheduled(t *testing.T) {
	base := func(t *testing.T) *pending.World {
		w := newWorld(t).TwoNodes()
		w.Pod(pending.Request("gpu", pending.Small))
		w.Placed("node-a")
		return w
	}
	for name, change := range map[string]func(*pending.World, *corev1.Pod){
		"running": func(w *pending.World, p *corev1.Pod) {
			w.Hold("node-a", "team-b", "train", pending.Small, 1)
			p.Status.Phase = corev1.PodRunning
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "load", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "not-needed", ResourceClaimTemplateName: new("pod")})
			p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "not-needed"})
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: "not-needed"})
		},
		"running-sick": func(w *pending.World, p *corev1.Pod) {
			held := w.Claim().Status.Allocation.Devices.Results[0]
			for i := range w.In.Slices { // the profile of the GPU has changed
				w.In.Slices[i].Spec.Devices = slices.DeleteFunc(w.In.Slices[i].Spec.Devices, func(d resourceapi.Device) bool { return d.Name == held.Device })
			}
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResourcesStatus: []corev1.ResourceStatus{
				{Name: "claim:gpu", Resources: []corev1.ResourceHealth{{ResourceID: "x", Health: corev1.ResourceHealthStatusUnhealthy}}},
			}}}
		},
		"running-not-ready": func(w *pending.World, p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			conditions := func(message string) []metav1.Condition {
				return []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Message: message}, {Type: "Other", Status: metav1.ConditionTrue, Message: "fine"}}
			}
			held := w.Claim().Status.Allocation.Devices.Results[0]
			w.Claim().Status.Devices = []resourceapi.AllocatedDeviceStatus{
				{Driver: held.Driver, Pool: "node-b", Device: held.Device, Conditions: conditions("same name on another node")},
				{Driver: held.Driver, Pool: held.Pool, Device: "another", Conditions: conditions("another device of the node")},
				{Driver: held.Driver, Pool: held.Pool, Device: held.Device, Conditions: conditions("the daemon of MPS has ended")},
			}
			event := func(reason, by string, change func(*corev1.Event)) {
				e := pending.Warning("Pod", "pod", reason, by, reason+" by "+by)
				change(&e)
				w.In.Events = append(w.In.Events, e)
			}
			at := func(ago time.Duration) metav1.Time { return metav1.NewTime(pending.Now.Add(-ago)) }
			event(names.EventShareLimitFailed, names.DriverName, func(e *corev1.Event) {
				e.Series = &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(pending.Now.Add(-10 * time.Second))}
			})
			event("Unhealthy", "kubelet", func(e *corev1.Event) { e.LastTimestamp = at(time.Hour) })
			event("Unhealthy", "", func(e *corev1.Event) {
				e.LastTimestamp, e.Source.Component, e.Count = metav1.Time{}, "kubelet", 0
				e.EventTime = metav1.NewMicroTime(pending.Now.Add(-20 * time.Second))
			})
			event(names.EventAnnotationIgnored, names.ControllerName, func(e *corev1.Event) { e.LastTimestamp, e.CreationTimestamp = metav1.Time{}, at(-time.Second) })
			event("Stale", "kubelet", func(e *corev1.Event) { e.InvolvedObject.UID, e.LastTimestamp = "uid-before", at(0) })
			event("Fourth", "kubelet", func(e *corev1.Event) { e.InvolvedObject.UID = p.UID })
		},
		"finished": func(_ *pending.World, p *corev1.Pod) {
			p.Status.Phase, p.Status.Message, p.DeletionTimestamp = corev1.PodFailed, "The node was low on memory.", &metav1.Time{Time: pending.Now}
			p.Spec.Containers[0].Resources.Claims = nil
		},
		"prepare-fails": func(w *pending.World, _ *corev1.Pod) {
			w.In.Events = []corev1.Event{
				pending.Warning("Pod", "pod", "FailedScheduling", "default-scheduler", "old news"),
				pending.Warning("Pod", "pod", "FailedPrepareDynamicResources", "kubelet", "Failed to prepare dynamic resources: prepare claim team-a/pod-gpu-x7k2p: GPU 0000:0f:00.0: create 1g.10gb at 6: a partition that Tranche did not make is in the way; free it: nvidia-smi mig -dci -gi 7 && nvidia-smi mig -dgi -gi 7"),
				pending.Warning("Pod", "other", "FailedPrepareDynamicResources", "kubelet", "another pod"),
			}
		},
		"starting": func(_ *pending.World, p *corev1.Pod) {
			waits := func(reason string) []corev1.ContainerStatus {
				return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
			}
			p.Status.InitContainerStatuses, p.Status.ContainerStatuses = waits("ContainerCreating"), waits("PodInitializing")
		},
		"image-missing": func(_ *pending.World, p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "nope"`},
			}}}
		},
		"stopping": func(w *pending.World, p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Claims = nil
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedKillPod", "kubelet", "timeout")}
			w.In.Events[0].LastTimestamp = metav1.Time{}
			p.DeletionTimestamp = &metav1.Time{Time: pending.Now.Add(20 * time.Second)}
		},
		"finished-held": func(_ *pending.World, p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: pending.Now.Add(-7 * time.Minute)}, []string{"example.com/keep"}
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodFailed
		},
		"stuck": func(w *pending.World, p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: pending.Now.Add(-7 * time.Minute)}
			w.In.NodeEvents = []corev1.Event{pending.Warning("Node", "node-a", "ReleaseFailed", "gpu.tranche.dev", "claim team-a/pod-gpu-x7k2p: process 4711 (python3) still uses the partition")}
		},
		"stuck-without-plugin": func(w *pending.World, p *corev1.Pod) {
			withoutPlugin(w)
			p.DeletionTimestamp = &metav1.Time{Time: w.In.Now.Add(-3 * time.Second)}
		},
		"starting-without-plugin": func(w *pending.World, _ *corev1.Pod) {
			withoutPlugin(w)
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedPrepareDynamicResources", "kubelet", "Failed to prepare dynamic resources: DRA driver gpu.tranche.dev is not registered")}
		},
		"stuck-elsewhere": func(w *pending.World, p *corev1.Pod) {
			w.In.Classes[0].Annotations = map[string]string{"tranche.dev/system-namespace": "gpu-drivers"}
			p.DeletionTimestamp = &metav1.Time{Time: pending.Now.Add(-7 * time.Minute)}
		},
		"gpu-gone": func(w *pending.World, p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			w.In.Slices = []resourceapi.ResourceSlice{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := base(t)
			change(w, w.In.Pod)
			requireText(t, name, w.Explain())
		})
	}
}

// withoutPlugin has the kubelet have deleted the slices of node-a, whose plugin is gone.
func withoutPlugin(w *pending.World) {
	w.GPUNodes(gpunodes.WithProfile("node-a", "dynamic").GPUs(gpunodes.MIGOn, w.GPUOf("node-a")))
	w.In.Slices = slices.DeleteFunc(w.In.Slices, func(s resourceapi.ResourceSlice) bool { return *s.Spec.NodeName == "node-a" })
}

// TestAbsent: no pod, because a quota refuses it or for no reason.
func TestAbsent(t *testing.T) {
	in := why.AbsentInput{Namespace: "team-a", Name: "nightly", Now: pending.Now}
	requireText(t, "absent", why.ExplainAbsence(in))
	nowhere := in
	nowhere.NoNamespace = true
	e := why.ExplainAbsence(nowhere)
	assert.Equal(t, "There is no namespace team-a.", e.Summary)
	assert.Equal(t, []fit.Remedy{{Text: "see which namespaces there are:", Command: "kubectl get namespaces"}}, e.Remedies)

	in.Events = []corev1.Event{
		pending.Warning("Job", "nightly", "FailedCreate", "job-controller", `Error creating: pods "nightly-bzf25" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/mig-2g.20gb=1`),
		pending.Warning("Job", "hourly", "FailedCreate", "job-controller", "another job"),
		pending.Warning("Job", "nightly", "BackoffLimitExceeded", "job-controller", "another reason"),
	}
	requireText(t, "absent-quota", why.ExplainAbsence(in))

	in.Events = append(in.Events, pending.Warning("ReplicaSet", "web-5f", "FailedCreate", "replicaset-controller", "forbidden"))
	for name, said := range map[string][]int{"nightly-bzf25": {1, 1}, "night": {0, 1}, "web": {1, 1}, "web-5f": {1, 1}, "nightly": {1, 2}} {
		e := why.ExplainAbsence(why.AbsentInput{Namespace: "team-a", Name: name, Events: in.Events})
		assert.Equal(t, said, []int{len(e.Quotes), len(e.Remedies)}, name)
	}

	in.Events = nil
	in.Pods = []corev1.Pod{*pending.PodNamed("nightly-1"), *pending.PodNamed("nightlife"), *pending.PodNamed("nightly-0")}
	requireText(t, "absent-others", why.ExplainAbsence(in))
	in.Pods = in.Pods[:1]
	assert.Equal(t, []fit.Remedy{{Text: "ask about one of its pods: nightly-1"}}, why.ExplainAbsence(in).Remedies)
}

// TestManyNodes: the likeliest are explained, the others counted.
func TestManyNodes(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.Node(fmt.Sprintf("small-%d", i), "L4-24GB", 1)
	}
	for i := range 6 {
		name := fmt.Sprintf("large-%d", i)
		w.Node(name, "H100-80GB", 1).Hold(name, "team-b", name, pending.WholeGPU, 1)
	}
	w.Pod(pending.Request("gpu", pending.Small))
	e := w.Explain()
	requireText(t, "many-nodes", e)
	var text bytes.Buffer
	require.NoError(t, picture.Screen{Width: 100}.Draw(&text, func(p *picture.Page) { picture.DrawExplanation(p, e, true) }))
	for _, n := range e.Nodes {
		assert.Contains(t, text.String(), "\n"+n.Name+": ")
	}
	assert.NotContains(t, text.String(), "Other nodes")
}

// TestJSON: the same input gives the same bytes.
func TestJSON(t *testing.T) {
	w := newWorld(t).TwoNodes().Hold("node-a", "team-b", "train", pending.WholeGPU, 2)
	w.Pod(pending.Request("gpu", pending.Small))
	var first, second bytes.Buffer
	require.NoError(t, picture.WriteJSON(&first, w.Explain()))
	require.NoError(t, picture.WriteJSON(&second, w.Explain()))
	assert.Equal(t, first.String(), second.String())
	var e why.Explanation
	require.NoError(t, json.Unmarshal(first.Bytes(), &e))
	assert.Equal(t, why.NoRoom, e.State)
	require.Len(t, e.Nodes, 2)
	assert.Equal(t, fit.Full, e.Nodes[0].Verdict)
	assert.Equal(t, 14, e.Nodes[0].Requests[0].Taken)
	assert.Equal(t, []string{"team-b: train-0, train-1"}, fit.NamesOf(e.Nodes[0].Requests[0].Holders))
	assert.Equal(t, fit.Lacking, e.Nodes[1].Verdict)
}
