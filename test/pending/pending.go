// Package pending is a cluster in memory in which a pod waits for devices: what plugins publish for
// simulated GPUs, the classes of the chart, and the scheduler's allocator to fill it. For the tests
// of what explains such pods.
//
// It may import the Kubernetes API, api, pkg/profile, pkg/publish, pkg/why, test/allocator,
// test/gpunodes and test/nodes.
package pending

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/nodes"
)

// Now is the time at which the cluster is looked at.
var Now = time.Date(2026, 11, 20, 3, 14, 0, 0, time.UTC)

// Names of DeviceClasses.
const (
	WholeGPU      = "gpu.tranche.dev"
	Small         = "gpu-mig-1g-10gb.tranche.dev"
	Three         = "gpu-mig-3g-40gb.tranche.dev"
	CPX           = "gpu-xcp-cpx.tranche.dev"
	DPX           = "gpu-xcp-dpx.tranche.dev"
	MemoryShare   = "gpu-memory-share.tranche.dev"
	FractionShare = "gpu-fraction-share.tranche.dev"
	PartShare     = "gpu-partition-memory-share.tranche.dev"
)

// World is the cluster, with the pod.
type World struct {
	T         testing.TB
	In        why.Input
	Scheduler *allocator.Scheduler
	published []*resourceapi.ResourceSlice
}

// New is a cluster without nodes. root is the folder of the module.
func New(t testing.TB, root string) *World {
	t.Helper()
	classes, err := allocator.Classes(filepath.Join(root, "deployments/helm/testdata/defaults.yaml"))
	require.NoError(t, err)
	w := &World{T: t, Scheduler: allocator.New(classes, nil)}
	w.In = why.Input{Templates: []resourceapi.ResourceClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}}}
	w.In.Now = Now
	for _, c := range classes {
		w.In.Classes = append(w.In.Classes, *c)
	}
	return w
}

// Node adds a node with GPUs; what says of a GPU may be changed before it is
// published.
func (w *World) Node(name, model string, count int, change ...func(*publish.GPU)) *World {
	w.T.Helper()
	published, err := nodes.OfModel(name, model, count, func(_ int, g *publish.GPU) {
		for _, f := range change {
			f(g)
		}
	})
	require.NoError(w.T, err)
	w.published = append(w.published, published...)
	for _, s := range published {
		w.In.Slices = append(w.In.Slices, *s)
	}
	w.Scheduler.Publish(w.published)
	w.In.Nodes = append(w.In.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"kubernetes.io/hostname": name},
	}})
	return w
}

// TwoNodes adds node-a with two H100 and node-b with an L4, which cannot be partitioned.
func (w *World) TwoNodes() *World {
	return w.Node("node-a", "H100-80GB", 2).Node("node-b", "L4-24GB", 1)
}

// Hold lets pods named pod-0, pod-1, … take devices of a class on a node until so
// many have one, or the node is full.
func (w *World) Hold(node, namespace, pod, class string, count int) *World {
	w.T.Helper()
	for i := range count {
		name := fmt.Sprintf("%s-%d", pod, i)
		claim := ClaimOf(namespace, name+"-gpu", Request("gpu", class))
		grant, err := w.Scheduler.Allocate(w.T.Context(), node, claim)
		require.NoError(w.T, err)
		if grant == nil {
			return w
		}
		w.Give(claim, grant.Result, name)
	}
	return w
}

// HoldShare lets a pod take a share on a node.
func (w *World) HoldShare(node, pod string, r resourceapi.DeviceRequest) *World {
	w.T.Helper()
	claim := ClaimOf("team-b", pod+"-gpu", r)
	grant, err := w.Scheduler.Allocate(w.T.Context(), node, claim)
	require.NoError(w.T, err)
	require.NotNil(w.T, grant, pod)
	w.Give(claim, grant.Result, pod)
	return w
}

// Give gives a pod the devices of a claim.
func (w *World) Give(claim *resourceapi.ResourceClaim, result resourceapi.AllocationResult, pod string) {
	claim.Status.Allocation = &result
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod}}
	w.In.Claims = append([]resourceapi.ResourceClaim{*claim}, w.In.Claims...)
}

// Pod is the one that is asked about: team-a/pod with one claim.
func (w *World) Pod(requests ...resourceapi.DeviceRequest) *corev1.Pod {
	w.In.Claims = append(w.In.Claims, *ClaimOf("team-a", "pod-gpu-x7k2p", requests...))
	w.In.Pod = PodNamed("pod")
	template, claim := "pod", "pod-gpu-x7k2p"
	w.In.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	w.In.Pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	w.In.Pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim}}
	w.Refused("0/1 nodes are available: 1 cannot allocate all claims.")
	return w.In.Pod
}

// Resources are pairs of name and quantity.
func Resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// Requests is an amount of GPU memory and compute.
func Requests(memory, compute string) corev1.ResourceList {
	return corev1.ResourceList{names.ResourceGPUMemory: resource.MustParse(memory), names.ResourceGPUCompute: resource.MustParse(compute)}
}

// Requesting lets a pod on a node request GPU memory and compute.
func (w *World) Requesting(node, namespace, name string, requests corev1.ResourceList) *World {
	pod := PodNamed(name)
	pod.Namespace, pod.Spec.NodeName, pod.Spec.Containers[0].Resources.Requests = namespace, node, requests
	w.In.Requesting = append(w.In.Requesting, *pod)
	return w
}

// Placed gives the pod its devices on a node.
func (w *World) Placed(node string) *corev1.Pod {
	w.T.Helper()
	i := len(w.In.Claims) - 1
	claim := w.In.Claims[i].DeepCopy()
	grant, err := w.Scheduler.Allocate(w.T.Context(), node, claim)
	require.NoError(w.T, err)
	require.NotNil(w.T, grant)
	w.In.Claims = w.In.Claims[:i]
	w.Give(claim, grant.Result, "pod")
	w.In.Pod.Spec.NodeName = node
	w.In.Pod.Status.Conditions = nil
	return w.In.Pod
}

// Claim is the last claim, that of the pod.
func (w *World) Claim() *resourceapi.ResourceClaim { return &w.In.Claims[len(w.In.Claims)-1] }

// PodNamed is a pod of team-a without claims.
func PodNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// Refused is what the scheduler wrote into the pod's status.
func (w *World) Refused(message string) {
	w.In.Pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
}

// ClaimOf is a claim of the pod.
func ClaimOf(namespace, name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c := allocator.Claim(name, requests...)
	c.Namespace = namespace
	controller := true
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "uid-pod", Controller: &controller}}
	return c
}

// Request is a request for one device.
func Request(name, class string) resourceapi.DeviceRequest { return allocator.Request(name, class, 1) }

// AnyOf is a request for one device of the first class that has one.
func AnyOf(name string, classes ...string) resourceapi.DeviceRequest {
	r := resourceapi.DeviceRequest{Name: name}
	for i, class := range classes {
		r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{
			Name: fmt.Sprintf("choice-%d", i), DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		})
	}
	return r
}

// Amounting is a request for a share with amounts, in pairs of name and quantity.
func Amounting(class string, amounts ...string) resourceapi.DeviceRequest {
	r := Request("gpu", class)
	r.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	for i := 0; i < len(amounts); i += 2 {
		r.Exactly.Capacity.Requests[resourceapi.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return r
}

// Sharing publishes shares of the GPUs of a node, as the settings want them.
func Sharing(limits bool, change ...func(*profile.Desired)) func(*publish.GPU) {
	return func(g *publish.GPU) {
		wanted := profile.Default()
		for _, f := range change {
			f(&wanted)
		}
		devices, err := wanted.ShareDevices(&g.GPU, limits)
		if err != nil {
			panic(err)
		}
		g.Placements = append(g.Placements, devices...)
	}
}

// TaintRule taints the devices of a pool for maintenance.
func TaintRule(pool string) resourceapi.DeviceTaintRule {
	return resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "fan-swap"},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: &pool},
			Taint:          resourceapi.DeviceTaint{Key: "example.com/maintenance", Value: "fan", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
}

// Warning is an event of team-a.
func Warning(kind, name, reason, by, message string) corev1.Event {
	return corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: "team-a", Name: name + "." + reason},
		InvolvedObject:      corev1.ObjectReference{Kind: kind, Name: name},
		Type:                corev1.EventTypeWarning,
		Reason:              reason,
		Message:             message,
		ReportingController: by,
		LastTimestamp:       metav1.NewTime(Now.Add(-90 * time.Second)),
		Count:               4,
	}
}

// Hide is what the user may not read.
func (w *World) Hide(all ...why.Resource) {
	for _, r := range all {
		w.In.Unread = append(w.In.Unread, why.Denied(r, w.In.Pod.Namespace))
	}
}

// Explain explains the pod.
func (w *World) Explain() *why.Explanation { return why.Explain(w.T.Context(), w.In) }

// Switched taints all devices of a node, as its plugin does during a switch.
func (w *World) Switched(node, profile string) {
	for i := range w.In.Slices {
		if s := &w.In.Slices[i].Spec; *s.NodeName == node {
			for j := range s.Devices {
				s.Devices[j].Taints = append(s.Devices[j].Taints, resourceapi.DeviceTaint{
					Key: names.TaintSwitching, Value: profile, Effect: resourceapi.DeviceTaintEffectNoSchedule,
				})
			}
		}
	}
}

// GPUOf is the first GPU of a node.
func (w *World) GPUOf(node string) string {
	w.T.Helper()
	var published []resourceapi.ResourceSlice
	for _, s := range w.published {
		published = append(published, *s)
	}
	gpus := publish.GPUs(node, published)
	require.NotEmpty(w.T, gpus, node)
	return gpus[0]
}

// GPUNodes adds the GPUNodes of nodes, at their time.
func (w *World) GPUNodes(all ...*gpunodes.Node) *World {
	w.In.Now = gpunodes.Now
	for _, n := range all {
		w.In.GPUNodes = append(w.In.GPUNodes, n.GPUNode)
	}
	return w
}

// Only publishes the partitions of a GPU, as with a profile of only these.
func Only(profile string) func(*publish.GPU) {
	return func(g *publish.GPU) {
		var left = g.Placements[:0:0]
		for _, p := range g.Placements {
			if p.Profile == profile {
				left = append(left, p)
			}
		}
		g.Placements = left
	}
}
