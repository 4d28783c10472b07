package why_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/pending"
)

func resources(amounts ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		out[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return out
}

// volume gives the pod a PersistentVolumeClaim, which may be changed.
func volume(w *pending.World, phase corev1.PersistentVolumeClaimPhase, change ...func(*corev1.PersistentVolumeClaim)) {
	w.In.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data"}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	c.Spec.StorageClassName = ptr.To("fast")
	for _, f := range change {
		f(&c)
	}
	w.In.Storage.Claims = []corev1.PersistentVolumeClaim{c}
	w.In.Storage.Classes = []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)},
		{ObjectMeta: metav1.ObjectMeta{Name: "local"}, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
	}
}

func bound(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName = "pv-1"
	c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
}

// inZone is a volume that nodes of one zone reach.
func inZone(w *pending.World, zone string) {
	w.In.Storage.Volumes = []corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}}},
	}}}
}

// told is the controller's event.
func told(w *pending.World, a string, message string) {
	e := pending.Warning("Pod", "pod", a, names.ControllerName, message)
	e.InvolvedObject.UID = w.In.Pod.UID
	w.In.Events = append(w.In.Events, e)
}

func gate(w *pending.World, name string) {
	w.In.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: name}}
}

// ofJob has the Workload be that of the pod's job.
func ofJob(w *pending.World) {
	w.In.Pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "nightly", UID: "uid-nightly", Controller: ptr.To(true)}}
	w.In.Workloads[0].Name, w.In.Workloads[0].OwnerReferences[0].UID = "job-nightly-12345", "uid-nightly"
}

// ofKueue is the Workload of the pod.
func ofKueue(w *pending.World, active bool, conditions ...metav1.Condition) {
	w.In.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	load := why.Workload{ObjectMeta: metav1.ObjectMeta{Name: "pod-pod-12345", OwnerReferences: []metav1.OwnerReference{{UID: w.In.Pod.UID}}}}
	load.Spec.QueueName, load.Spec.Active = "gpus", &active
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(pending.Now.Add(-7 * time.Minute))
	}
	load.Status.Conditions = conditions
	w.In.Workloads = []why.Workload{load}
}

// TestSituations: what keeps a pod from a node beside devices, and what a user without rights is told.
func TestSituations(t *testing.T) {
	asks := func(t *testing.T) *pending.World {
		w := newWorld(t).TwoNodes()
		w.Pod(pending.Request("gpu", pending.Small))
		return w
	}
	full := func(t *testing.T) *pending.World {
		w := newWorld(t).TwoNodes().Hold("node-a", "team-b", "train", pending.WholeGPU, 2)
		w.Pod(pending.Request("gpu", pending.Small))
		return w
	}
	extended := func(t *testing.T) *pending.World {
		w := newWorld(t).TwoNodes()
		w.In.Pod = pending.PodNamed("pod")
		w.In.Pod.Spec.Containers[0].Resources.Requests = resources("nvidia.com/mig-1g.10gb", "1")
		return w
	}
	for name, world := range map[string]func(*testing.T) *pending.World{
		"volume-missing": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, "")
			w.In.Storage.Claims = []corev1.PersistentVolumeClaim{}
			return w
		},
		"volume-unbound": func(t *testing.T) *pending.World {
			w := full(t)
			volume(w, corev1.ClaimPending)
			w.In.Events = []corev1.Event{pending.Warning("PersistentVolumeClaim", "data", "ProvisioningFailed", "csi.example.com", "out of space")}
			return w
		},
		"volume-without-class": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, corev1.ClaimPending, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
			return w
		},
		"volume-lost": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, corev1.ClaimLost)
			return w
		},
		"volume-terminating": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, corev1.ClaimBound, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: pending.Now} })
			return w
		},
		"volume-on-demand": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, corev1.ClaimPending, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("local") })
			return w
		},
		"volume-elsewhere": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, corev1.ClaimBound, bound)
			inZone(w, "two")
			w.In.Nodes[0].Labels["topology.kubernetes.io/zone"] = "one"
			return w
		},
		"volume-hidden": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, corev1.ClaimBound, bound)
			w.Hide(why.ResourceVolumes)
			return w
		},
		"volume-claims-hidden": func(t *testing.T) *pending.World {
			w := asks(t)
			volume(w, corev1.ClaimBound)
			w.In.Storage.Claims, w.In.Storage.Classes = nil, nil
			w.Hide(why.ResourceVolumeClaims, why.ResourceStorageClasses)
			return w
		},
		"preempting": func(t *testing.T) *pending.World {
			w := full(t)
			w.In.Pod.Status.NominatedNodeName = "node-a"
			return w
		},
		// The scheduler also names the node before it binds the pod there.
		"being-placed": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Pod.Status.NominatedNodeName, w.In.Pod.Status.Conditions = "node-a", nil
			w.In.Events = []corev1.Event{{Reason: "Preempted", Related: &corev1.ObjectReference{UID: "uid-other"}}, {Reason: "Other", Related: &corev1.ObjectReference{UID: "uid-pod"}}, {Reason: "Preempted"}}
			return w
		},
		"preempting-for-it": func(t *testing.T) *pending.World {
			w := full(t)
			w.In.Pod.Status.NominatedNodeName, w.In.Pod.Status.Conditions = "node-a", nil
			preempted := pending.Warning("Pod", "victim", "Preempted", "default-scheduler", "Preempted by pod uid-pod on node node-a")
			preempted.Type, preempted.Related = corev1.EventTypeNormal, &corev1.ObjectReference{Kind: "Pod", Name: "pod", UID: "uid-pod"}
			w.In.Events = []corev1.Event{preempted}
			return w
		},
		"other-scheduler": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Pod.Spec.SchedulerName, w.In.Pod.Status.Conditions = "kai-scheduler", nil
			return w
		},
		"other-scheduler-and-full": func(t *testing.T) *pending.World {
			w := full(t)
			w.In.Pod.Spec.SchedulerName, w.In.Pod.Status.Conditions = "kai-scheduler", nil
			return w
		},
		"gate-unknown": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/approval"}}
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "NotApproved", "approver.example.com", "ask somebody")}
			return w
		},
		"kueue-pending": func(t *testing.T) *pending.World {
			w := asks(t)
			ofKueue(w, true, metav1.Condition{Type: "QuotaReserved", Status: "False", Reason: "Pending", Message: "couldn't assign flavors to pod set main: insufficient unused quota for gpu-memory in flavor default, 40Gi more needed"})
			return w
		},
		"kueue-deactivated": func(t *testing.T) *pending.World {
			w := asks(t)
			ofKueue(w, false, metav1.Condition{Type: "Evicted", Status: "True", Reason: "Deactivated", Message: "The workload is deactivated"})
			return w
		},
		// Gates that Kueue adds to the pods of a job that runs.
		"kueue-topology": func(t *testing.T) *pending.World {
			w := asks(t)
			ofKueue(w, true, metav1.Condition{Type: "Admitted", Status: "True", Reason: "Admitted", Message: "The workload is admitted"})
			gate(w, "kueue.x-k8s.io/topology")
			ofJob(w)
			return w
		},
		"kueue-elastic": func(t *testing.T) *pending.World {
			w := asks(t)
			ofKueue(w, true, metav1.Condition{Type: "QuotaReserved", Status: "False", Reason: "Pending", Message: "insufficient unused quota for gpu-memory in flavor default, 40Gi more needed"})
			gate(w, "kueue.x-k8s.io/elastic-job")
			ofJob(w)
			return w
		},
		"kueue-hidden": func(t *testing.T) *pending.World {
			w := asks(t)
			ofKueue(w, true)
			w.In.Workloads = nil
			w.Hide(why.ResourceWorkloads)
			return w
		},
		"own-claims-hidden": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Claims, w.In.Partial = nil, true
			w.Hide(why.ResourceClaims, why.ResourceOwnClaims)
			return w
		},
		"templates-hidden": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Claims, w.In.Pod.Status.ResourceClaimStatuses, w.In.Templates = nil, nil, nil
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedResourceClaimCreation", "resource_claim", "exceeded quota: gpus")}
			w.Hide(why.ResourceTemplates)
			return w
		},
		"template-late": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Claims, w.In.Pod.Status.ResourceClaimStatuses = nil, nil
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedResourceClaimCreation", "resource_claim", `resource claim template "pod": not found`)}
			return w
		},
		"claim-of-another-pod": func(t *testing.T) *pending.World {
			w := asks(t)
			w.Claim().OwnerReferences[0].UID = "uid-before"
			return w
		},
		"claim-does-not-exist": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("shared")}}
			return w
		},
		"claim-being-deleted": func(t *testing.T) *pending.World {
			w := asks(t)
			w.Claim().DeletionTimestamp = &metav1.Time{Time: pending.Now}
			return w
		},
		"quota-of-claims": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Claims, w.In.Pod.Status.ResourceClaimStatuses = []resourceapi.ResourceClaim{*pending.ClaimOf("team-a", "shared")}, nil
			w.In.Pod.Spec.ResourceClaims = append(w.In.Pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "more", ResourceClaimTemplateName: new("pod")},
				corev1.PodResourceClaim{Name: "shared", ResourceClaimName: new("shared")})
			w.In.Templates = append([]resourceapi.ResourceClaimTemplate{{}}, w.In.Templates...)
			w.In.Templates[1].Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{pending.Request("gpu", pending.Small)}
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedResourceClaimCreation", "resource_claim", "exceeded quota: gpus")}
			w.In.Quotas = []corev1.ResourceQuota{
				{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Status: corev1.ResourceQuotaStatus{
					Hard: resources(pending.Small+".deviceclass.resource.k8s.io/devices", "4", "count/resourceclaims.resource.k8s.io", "100"),
					Used: resources(pending.Small+".deviceclass.resource.k8s.io/devices", "4", "count/resourceclaims.resource.k8s.io", "7"),
				}},
				{ObjectMeta: metav1.ObjectMeta{Name: "resources"}, Status: corev1.ResourceQuotaStatus{
					Hard: resources("requests.nvidia.com/mig-1g.10gb", "4"), Used: resources("requests.nvidia.com/mig-1g.10gb", "1"),
				}},
			}
			return w
		},
		"rules-hidden": func(t *testing.T) *pending.World {
			w := asks(t)
			w.Hide(why.ResourceRules)
			return w
		},
		// A tenant: own claims, classes, slices, rules and nodes.
		"tenant-full": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Hold("node-a", "team-a", "mine", pending.WholeGPU, 2)
			w.Pod(pending.Request("gpu", pending.Small))
			w.In.Partial = true
			w.Hide(why.ResourceClaims, why.ResourceGPUNodes, why.ResourceNodeEvents)
			return w
		},
		"tenant-may-be-full": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Partial = true
			w.Hide(why.ResourceClaims, why.ResourceGPUNodes, why.ResourceNodeEvents)
			return w
		},
		"tenant-is-told": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Partial = true
			w.Hide(why.ResourceClaims)
			told(w, names.EventDevicesHeld, "Waits for 1 × 1g.10gb. Of 2 nodes with GPUs, 1 has none free, 1 has no such device. For details: kubectl tranche why pod")
			return w
		},
		"tenant-without-classes-is-told": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Classes, w.In.Partial = nil, true
			w.Hide(why.ResourceClaims, why.ResourceClasses)
			told(w, names.EventNoSuchDevice, "Waits for 1 × gpu-mig-1g-5gb.tranche.dev: no device of class gpu-mig-1g-5gb.tranche.dev. For details: kubectl tranche why pod")
			return w
		},
		"tenant-with-devices": func(t *testing.T) *pending.World {
			w := asks(t)
			w.Placed("node-a").Spec.NodeName = ""
			w.Refused("0/2 nodes are available: 1 Insufficient memory.")
			w.In.Partial = true
			w.Hide(why.ResourceClaims)
			return w
		},
		"tenant-without-slices": func(t *testing.T) *pending.World {
			w := asks(t)
			w.In.Slices, w.In.Nodes, w.In.Partial = nil, nil, true
			w.Hide(why.ResourceClaims, why.ResourceSlices, why.ResourceNodes)
			return w
		},
		"nodes-hidden-no-class": func(t *testing.T) *pending.World {
			w := extended(t)
			w.In.Pod.Spec.Containers[0].Resources.Requests = resources("nvidia.com/mig-1g.99gb", "1")
			w.In.Nodes = nil
			w.Hide(why.ResourceNodes)
			return w
		},
		"nodes-hidden-full": func(t *testing.T) *pending.World {
			w := extended(t).Hold("node-a", "team-b", "train", pending.WholeGPU, 2)
			w.In.Nodes = nil
			w.Hide(why.ResourceNodes)
			return w
		},
		// The controller's words are not needed by who sees everything.
		"administrator-is-told": func(t *testing.T) *pending.World {
			w := full(t)
			told(w, names.EventNoSuchDevice, "an answer of before")
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireText(t, name, world(t).Explain())
		})
	}
}

// What runs or starts is not explained by what cannot be read.
func TestScheduledWithoutRights(t *testing.T) {
	w := newWorld(t).TwoNodes()
	w.Pod(pending.Request("gpu", pending.Small))
	pod := w.Placed("node-a")
	w.In.Slices, w.In.Classes, w.In.Nodes = nil, nil, nil
	w.Hide(why.ResourceSlices, why.ResourceClasses, why.ResourceNodes, why.ResourceRules, why.ResourceGPUNodes, why.ResourceNodeEvents)
	pod.Status.Phase = corev1.PodRunning
	e := w.Explain()
	assert.Equal(t, why.Running, e.State)
	assert.Equal(t, "team-a/pod runs on node-a.", e.Summary, "its device is published as far as can be told")
	assert.Empty(t, e.Unread)

	pod.Status.Phase = corev1.PodPending
	w.Hide(why.ResourceEvents)
	e = w.Explain()
	assert.Equal(t, why.Starting, e.State)
	assert.Contains(t, e.Summary, "Without its events it cannot be determined whether anything prevents that.")
	assert.Len(t, e.Remedies, 1)
	require.Len(t, e.Unread, 1)
	assert.Equal(t, []string{"events", "team-a"}, []string{e.Unread[0].Resource, e.Unread[0].Namespace})

	w.In.Claims = nil
	assert.Contains(t, w.Explain().Summary, "But the claim pod-gpu-x7k2p does not exist")
	w.Hide(why.ResourceOwnClaims)
	assert.NotContains(t, w.Explain().Summary, "But")
	pod.DeletionTimestamp = &metav1.Time{Time: pending.Now.Add(20 * time.Second)}
	assert.Contains(t, w.Explain().Summary, "without its claims it cannot be determined whether it holds a GPU")
	pod.DeletionTimestamp = &metav1.Time{Time: pending.Now.Add(-7 * time.Minute)}
	assert.Contains(t, w.Explain().Remedies[0].Text, "(of the pod that this command lists):")
}
