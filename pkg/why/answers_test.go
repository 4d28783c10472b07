package why_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/pending"
)

const (
	nvidiaGPU = "gpu-nvidia.tranche.dev"
	amdGPU    = "gpu-amd.tranche.dev"
	four      = "gpu-mig-4g-40gb.tranche.dev"
	partition = "gpu-partition.tranche.dev"
)

var small = []resourceapi.DeviceRequest{pending.Request("gpu", pending.Small)}

// selecting is a request for one device with selectors.
func selecting(class string, expressions ...string) resourceapi.DeviceRequest {
	r := pending.Request("gpu", class)
	for _, e := range expressions {
		r.Exactly.Selectors = append(r.Exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return r
}

func all(class string) resourceapi.DeviceRequest {
	r := pending.Request("gpu", class)
	r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
	return r
}

// one is the requests of a pod that has one.
func one(r resourceapi.DeviceRequest) []resourceapi.DeviceRequest {
	return []resourceapi.DeviceRequest{r}
}

// onOneGPU has all requests of the claim served by one GPU.
func onOneGPU(w *pending.World) {
	w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
}

// runs has the pod run with its devices since yesterday.
func runs(w *pending.World) *corev1.Pod {
	pod := w.Placed("node-a")
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(pending.Now.Add(-24 * time.Hour))},
	}}}
	return pod
}

// fails has a container have ended so often.
func fails(s *corev1.ContainerStatus, restarts int32) {
	s.RestartCount = restarts
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
}

// extendedPod asks for extended resources.
func extendedPod(w *pending.World, amounts ...string) {
	w.In.Pod = pending.PodNamed("pod")
	w.In.Pod.Spec.Containers[0].Resources.Requests = resources(amounts...)
	w.Refused("0/2 nodes are available.")
}

func taintNode(w *pending.World, node int, key, value string) {
	w.In.Nodes[node].Spec.Taints = []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}
}

// answers are pods in a cluster with two H100 on node-a and an MI300X on node-b, as cluster administrators and
// users meet them. The golden file has the answers.
var answers = []struct {
	name     string
	requests []resourceapi.DeviceRequest
	// change changes the cluster, and the pod if it has requests.
	change func(w *pending.World)
}{
	// Nothing of the kind.
	{"more GPUs than a node has", one(allocator.Request("gpu", pending.WholeGPU, 9)), nil},
	{"more nvidia.com/gpu than a node has", nil, func(w *pending.World) {
		lists.Find(w.In.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == nvidiaGPU }).Spec.ExtendedResourceName = ptr.To("nvidia.com/gpu")
		extendedPod(w, "nvidia.com/gpu", "9")
	}},
	{"a profile of another model", one(pending.Request("gpu", "gpu-mig-1g-5gb.tranche.dev")), nil},
	{"a typing error in the class", one(pending.Request("gpu", "gpu-mig-1g10gb.tranche.dev")), nil},
	{"a class of NVIDIA's driver", one(pending.Request("gpu", "gpu.nvidia.com")), nil},
	{"a typing error in the extended resource", nil, func(w *pending.World) { extendedPod(w, "nvidia.com/mig-1g.11gb", "1") }},
	{"a typing error in the template", small, func(w *pending.World) {
		w.In.Claims, w.In.Pod.Status.ResourceClaimStatuses = nil, nil
		w.In.Pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("smal-gpu")
		w.In.Templates[0].Name = "small-gpu"
	}},
	{"a share that is larger than a GPU", one(pending.Amounting(pending.MemoryShare, "memory", "300Gi")), nil},
	{"GPUs of both vendors", []resourceapi.DeviceRequest{pending.Request("a", nvidiaGPU), pending.Request("b", amdGPU)}, nil},
	{"the same of what partitions do not have", []resourceapi.DeviceRequest{pending.Request("a", pending.Small), pending.Request("b", pending.Small)}, func(w *pending.World) {
		w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/uuid"))}}
	}},
	{"two large partitions of one GPU", []resourceapi.DeviceRequest{pending.Request("a", four), pending.Request("b", four)}, onOneGPU},
	{"a whole GPU of a node whose profile hides it", one(pending.Request("gpu", nvidiaGPU)), func(w *pending.World) {
		*w = *newWorld(w.T.(*testing.T)).Node("node-a", "H100-80GB", 1, pending.Only("1g.10gb"))
		w.Pod(pending.Request("gpu", nvidiaGPU))
		static := v1beta1.Rule{MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "1g.10gb"}}}}
		w.In.GPUNodes = append(w.In.GPUNodes, gpunodes.WithProfile("node-a", "all-1g.10gb", static).GPUNode)
	}},
	{"alternatives that do not exist", one(pending.AnyOf("gpu", "gpu-mig-1g-5gb.tranche.dev", "gpu-mig-2g-10gb.tranche.dev")), nil},

	// Selectors.
	{"memory that no GPU has", one(selecting(pending.WholeGPU, `device.capacity["gpu.tranche.dev"].memory.compareTo(quantity("500Gi")) >= 0`)), nil},
	{"the short name of a product", one(selecting(nvidiaGPU, `device.attributes["gpu.tranche.dev"].productName == "H100"`)), nil},
	{"an attribute that not all devices have", one(selecting(pending.WholeGPU, `device.attributes["gpu.tranche.dev"].profile == "1g.10gb"`)), nil},
	{"selectors that exclude each other", one(selecting(pending.WholeGPU,
		`device.attributes["gpu.tranche.dev"].vendor == "nvidia"`, `device.attributes["gpu.tranche.dev"].productName.startsWith("AMD")`)), nil},
	{"a variable in a selector", one(selecting(partition, `cel.bind(d, device.attributes["gpu.tranche.dev"], has(d.profile) && d[?"profile"].orValue("") == "1g.11gb")`)), nil},
	{"numbers of a selector", one(selecting(pending.Small, `device.attributes["gpu.tranche.dev"].placementStart > 7`)), nil},

	// Causes other than GPUs.
	{"a node selector that no node matches", small, func(w *pending.World) { w.In.Pod.Spec.NodeSelector = map[string]string{"gpu": "yes"} }},
	{"500 CPUs", one(pending.Request("gpu", pending.WholeGPU)), func(w *pending.World) {
		w.In.Pod.Spec.Containers[0].Resources.Requests = resources("cpu", "500")
		w.In.Nodes[0].Status.Allocatable, w.In.Nodes[1].Status.Allocatable = resources("cpu", "64"), resources("cpu", "192")
	}},
	{"a taint of the node", small, func(w *pending.World) { taintNode(w, 0, "team", "research") }},
	{"a cordoned node", small, func(w *pending.World) { w.In.Nodes[0].Spec.Unschedulable = true }},
	{"a cordoned node that is full", small, func(w *pending.World) {
		w.Hold("node-a", "team-b", "train", pending.WholeGPU, 2)
		w.In.Nodes[0].Spec.Unschedulable = true
	}},
	{"another reason on each node", one(pending.Request("gpu", pending.WholeGPU)), func(w *pending.World) {
		w.In.Nodes[0].Spec.Unschedulable = true
		taintNode(w, 1, "team", "research")
	}},
	{"a volume in another zone", small, func(w *pending.World) {
		volume(w, corev1.ClaimBound, bound)
		inZone(w, "two")
	}},
	{"no such volume", small, func(w *pending.World) {
		volume(w, "")
		w.In.Storage.Claims = []corev1.PersistentVolumeClaim{}
	}},
	{"no such claim", small, func(w *pending.World) {
		w.In.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("shared")}}
	}},
	{"a quota for claims", small, func(w *pending.World) {
		w.In.Claims, w.In.Pod.Status.ResourceClaimStatuses = nil, nil
		w.In.Templates[0].Spec.Spec.Devices.Requests = small
		w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedResourceClaimCreation", "resource_claim", "exceeded quota: gpus")}
		name := pending.Small + ".deviceclass.resource.k8s.io/devices"
		w.In.Quotas = []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Status: corev1.ResourceQuotaStatus{Hard: resources(name, "4"), Used: resources(name, "4")}}}
	}},
	{"a scheduler that does not run", small, func(w *pending.World) {
		w.In.Pod.Spec.SchedulerName, w.In.Pod.Status.Conditions = "kai-scheduler", nil
	}},
	{"a user without rights for the cluster", small, func(w *pending.World) {
		w.In.Classes, w.In.Nodes, w.In.Slices, w.In.Partial = nil, nil, nil, true
		w.Hide(why.ResourceClasses, why.ResourceNodes, why.ResourceSlices, why.ResourceClaims)
	}},

	// Devices are held.
	{"a whole GPU among partitions", one(pending.Request("gpu", nvidiaGPU)), func(w *pending.World) {
		w.Hold("node-a", "team-b", "train", pending.Small, 8)
	}},
	{"a large partition among small ones", one(pending.Request("gpu", four)), func(w *pending.World) {
		w.Hold("node-a", "team-b", "train", pending.Small, 14)
	}},
	{"all GPUs of a node", one(all(nvidiaGPU)), func(w *pending.World) { w.Hold("node-a", "team-b", "train", pending.Small, 8) }},
	{"an AMD GPU in another mode", one(pending.Request("gpu", pending.DPX)), func(w *pending.World) { w.Hold("node-b", "team-b", "rank", pending.CPX, 3) }},
	{"two partitions of one GPU, one held on each", []resourceapi.DeviceRequest{pending.Request("a", pending.Three), pending.Request("b", pending.Three)}, func(w *pending.World) {
		w.Hold("node-a", "team-b", "train", four, 2)
		onOneGPU(w)
	}},
	{"the rest of a share", one(pending.Amounting(pending.MemoryShare, "memory", "20Gi")), func(w *pending.World) {
		w.HoldShare("node-a", "large", pending.Amounting(pending.MemoryShare, "memory", "50Gi")).HoldShare("node-a", "small", pending.Amounting(pending.MemoryShare, "memory", "20Gi"))
		w.Hold("node-a", "team-c", "small", pending.Small, 9).Hold("node-b", "team-c", "amd", pending.CPX, 8)
	}},
	{"a GPU out of service", one(pending.Request("gpu", amdGPU)), func(w *pending.World) { w.In.Rules = []resourceapi.DeviceTaintRule{pending.TaintRule("node-b")} }},

	// The pod has a node, and not what it asks for.
	{"an image that does not exist", small, func(w *pending.World) {
		w.Placed("node-a").Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: `image "nope" not found`},
		}}}
	}},
	{"no container names the claim", small, func(w *pending.World) { runs(w).Spec.Containers[0].Resources.Claims = nil }},
	{"a container names another request", small, func(w *pending.World) {
		runs(w).Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu", Request: "large"}}
	}},
	{"a request of one of two claims", small, func(w *pending.World) {
		pod := runs(w)
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu", Request: "gpu"}, {Name: "more", Request: "other"}}
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "more", ResourceClaimName: new("more")})
		w.In.Claims = append(w.In.Claims, *pending.ClaimOf(pod.Namespace, "more", pending.Request("other", pending.Small)))
	}},
	{"HAMi's memory beside what there is", small, func(w *pending.World) {
		w.In.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpumem": resource.MustParse("3000")}
		w.In.Translated = []string{"kai"}
	}},
	{"the name of a template as that of a claim", small, func(w *pending.World) {
		w.In.Templates = append(w.In.Templates, resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "big", Namespace: w.In.Pod.Namespace}})
		w.In.Pod.Spec.ResourceClaims[0].ResourceClaimTemplateName, w.In.Pod.Spec.ResourceClaims[0].ResourceClaimName = nil, new("big")
	}},
	{"an annotation without effect", nil, func(w *pending.World) {
		w.In.Pod = pending.PodNamed("pod")
		w.In.Pod.Annotations = map[string]string{"gpu-fraction": "0.5"}
		w.In.Pod.Spec.NodeName, w.In.Pod.Status.Phase = "node-a", corev1.PodRunning
	}},
	{"a crash loop", small, func(w *pending.World) {
		s := &runs(w).Status.ContainerStatuses[0]
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container"}}
		fails(s, 7)
	}},
	{"a crash loop, between two crashes", small, func(w *pending.World) {
		s := &runs(w).Status.ContainerStatuses[0]
		s.State.Running.StartedAt = metav1.NewTime(pending.Now.Add(-time.Minute))
		fails(s, 7)
	}},
	{"a crash yesterday", small, func(w *pending.World) { fails(&runs(w).Status.ContainerStatuses[0], 1) }},
	{"an init container that fails", small, func(w *pending.World) {
		w.Placed("node-a").Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "load", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container"},
		}}}
		fails(&w.In.Pod.Status.InitContainerStatuses[0], 1)
	}},
	{"a program that ends", small, func(w *pending.World) {
		runs(w).Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	}},
	{"configuration for another driver", small, func(w *pending.World) {
		w.Claim().Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "gpu.nvidia.com"},
		}}, {}}
		runs(w)
	}},
}

// TestAnswers: for each pod its cause, and what to do about it. The event has the same words.
func TestAnswers(t *testing.T) {
	var got strings.Builder
	for _, test := range answers {
		w := newWorld(t).Node("node-a", "H100-80GB", 2, pending.Sharing(false)).Node("node-b", "MI300X", 1, pending.Sharing(false))
		if test.requests != nil {
			w.Pod(test.requests...)
		}
		if test.change != nil {
			test.change(w)
		}
		e := w.Explain()
		fmt.Fprintf(&got, "# %s\n%s\n", test.name, e.Summary)
		for _, r := range e.Remedies {
			fmt.Fprintf(&got, "- %s\n", strings.TrimSpace(r.Text+" "+r.Command))
		}
		got.WriteString("\n")
		if e.Answer == names.EventNoSuchDevice || e.Answer == names.EventNodesExcluded {
			assert.Equal(t, strings.Replace(e.Summary, "team-a/pod w", "W", 1)+" For details: kubectl tranche why pod -n team-a", note(w), test.name)
		}
	}
	golden.Equal(t, "testdata/answers.txt", got.String())
}

// note is the text of the event, as the controller finds it: node by node.
func note(w *pending.World) string {
	d := demand.Of(demand.Input{Pod: w.In.Pod, Claims: w.In.Claims, Templates: w.In.Templates, Classes: w.In.Classes, Storage: w.In.Storage})
	var nodes fit.Tally
	for _, n := range w.In.Nodes {
		o := w.In.Objects
		o.Slices = lists.Filter(o.Slices, func(s resourceapi.ResourceSlice) bool { return *s.Spec.NodeName == n.Name })
		nodes.Add(fit.NewNodeModel(o).Judge(w.T.Context(), n.Name, d), 1)
	}
	return fit.Note(types.NamespacedName{Namespace: w.In.Pod.Namespace, Name: w.In.Pod.Name}, d.Asks(), nodes)
}
