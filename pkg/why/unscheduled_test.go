package why_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why"
)

// TestUnscheduled: each way in which a pod can wait for a device, and the words
// for it.
func TestUnscheduled(t *testing.T) {
	for name, test := range map[string]struct {
		state why.State
		world func(*testing.T) *world
	}{
		"no-such-profile": {why.NoRoom, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", "gpu-mig-1g-35gb.tranche.dev"))
			return w
		}},
		"full": {why.NoRoom, func(t *testing.T) *world {
			w := twoNodes(t).hold("node-a", "team-b", "train", small, 7).hold("node-a", "team-a", "serve", three, 1)
			w.hold("node-a", "team-c", "eval", "gpu-mig-4g-40gb.tranche.dev", 1)
			w.pod(request("gpu", small))
			return w
		}},
		"full-with-room-for-others": {why.NoRoom, func(t *testing.T) *world {
			w := twoNodes(t).hold("node-a", "team-b", "train", small, 8)
			w.pod(request("gpu", wholeGPU))
			w.in.Pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node-a"}
			return w
		}},
		"tainted": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.in.Rules = []resourceapi.DeviceTaintRule{taintRule(w.in.Slices[0].Spec.Pool.Name)}
			w.pod(request("gpu", small))
			return w
		}},
		"amd-other-mode": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-b", "MI300X", 2)
			w.hold("node-b", "team-b", "rank", cpx, 8).hold("node-b", "team-c", "notebook", cpx, 1)
			w.pod(request("gpu", dpx))
			return w
		}},
		"amd-other-mode-excluded": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-b", "MI300X", 1).hold("node-b", "team-b", "rank", cpx, 8)
			w.pod(request("gpu", dpx)).Spec.NodeSelector = map[string]string{"disk": "ssd"}
			return w
		}},
		"amd-both-modes": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1).node("node-b", "MI300X", 3)
			w.hold("node-b", "team-b", "rank", cpx, 3).hold("node-b", "team-c", "half", dpx, 2).hold("node-b", "team-d", "all", "gpu-amd.tranche.dev", 1)
			w.pod(request("gpu", dpx))
			return w
		}},
		"amd-busy": {why.NoRoom, func(t *testing.T) *world {
			busy := func(g *publish.GPU) {
				g.DeviceTaints = map[string][]resourceapi.DeviceTaint{}
				for _, p := range g.Placements {
					if p.Profile != "cpx" {
						g.DeviceTaints[p.Name()] = []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/busy", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
					}
				}
			}
			w := newWorld(t).node("node-b", "MI300X", 1, busy)
			w.in.NodeEvents = []corev1.Event{warning("Node", "node-b", "GPUBusy", "gpu.tranche.dev", "GPU gpu-0000-11-00-0: cannot allocate dpx-0, dpx-1 now: the GPU stays in mode CPX as long as process 4711 (python3) uses it")}
			w.pod(request("gpu", dpx))
			return w
		}},
		"amd-no-such-mode": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-b", "MI300X", 1)
			w.pod(request("gpu", "gpu-xcp-tpx.tranche.dev"))
			return w
		}},
		"amd-any-partition": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1).node("node-b", "MI300X", 1)
			w.hold("node-b", "team-b", "rank", cpx, 8).hold("node-a", "team-c", "all", wholeGPU, 1)
			w.pod(request("gpu", "gpu-partition.tranche.dev"))
			return w
		}},
		"amd-half-beside-eighths": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-b", "MI300X", 1)
			w.pod(request("a", cpx), request("b", dpx))
			w.claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
			return w
		}},
		"amd-whole-gpu": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-b", "MI300X", 1).hold("node-b", "team-b", "rank", cpx, 3)
			w.pod(request("gpu", wholeGPU))
			return w
		}},
		"tolerated": {why.RoomNow, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.in.Rules = []resourceapi.DeviceTaintRule{taintRule(w.in.Slices[0].Spec.Pool.Name)}
			r := request("gpu", small)
			r.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "example.com/maintenance", Operator: resourceapi.DeviceTolerationOpExists}}
			w.pod(r)
			return w
		}},
		"unhealthy": {why.NoRoom, func(t *testing.T) *world {
			sick := func(g *publish.GPU) {
				g.Taints = []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/unhealthy", Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute}}
			}
			w := newWorld(t).node("node-a", "H100-80GB", 1, sick).node("node-b", "L4-24GB", 1)
			w.pod(request("gpu", small))
			return w
		}},
		"other-nodes-wanted": {why.NoRoom, func(t *testing.T) *world {
			w := twoNodes(t).node("node-c", "H100-80GB", 1)
			pod := w.pod(request("gpu", small))
			pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"one", "two"}}},
				}}},
			}}
			w.in.Nodes[0].Labels["zone"] = "one"
			w.in.Nodes[2].Labels["zone"], w.in.Nodes[2].Labels["disk"] = "two", "ssd"
			w.in.Nodes[2].Spec.Taints = []corev1.Taint{
				{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
				{Key: "gpu", Value: "reserved", Effect: corev1.TaintEffectNoExecute},
			}
			return w
		}},
		"no-such-device-anywhere": {why.NoRoom, lackingEverywhere},
		"withheld": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld = true })
			w.in.NodeEvents = []corev1.Event{
				warning("Node", "node-a", "OtherSystem", "gpu.tranche.dev", "Tranche does not offer the NVIDIA GPUs of this node, because a device plugin serves nvidia.com/gpu: 8 here. To let Tranche have them, keep the NVIDIA device plugin off this node (with the GPU operator: label nvidia.com/gpu.deploy.device-plugin=false); to publish them in spite of that, set ignoreOtherSystems=true in the chart"),
				warning("Node", "node-a", "Rebooted", "kubelet", "not ours"),
			}
			w.pod(request("gpu", small))
			return w
		}},
		"being-published": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.in.Slices = w.in.Slices[:1]
			w.pod(request("gpu", small))
			return w
		}},
		"one-gpu-has-not-both": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 2).hold("node-a", "team-b", "train", "gpu-mig-4g-40gb.tranche.dev", 2)
			w.pod(request("a", three), request("b", three))
			w.claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
			return w
		}},
		"more-than-a-gpu": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 2)
			w.pod(request("a", three), request("b", three), request("c", three))
			w.claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
			return w
		}},
		"too-many": {why.NoRoom, func(t *testing.T) *world {
			w := twoNodes(t)
			r := request("gpu", wholeGPU)
			r.Exactly.Count = 3
			w.pod(r)
			return w
		}},
		"several": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 3).hold("node-a", "team-b", "train", wholeGPU, 1)
			r := request("gpu", wholeGPU)
			r.Exactly.Count = 3
			w.pod(r)
			return w
		}},
		"first-available": {why.NoRoom, func(t *testing.T) *world {
			w := twoNodes(t).hold("node-a", "team-b", "train", three, 4)
			w.pod(anyOf("gpu", three, "gpu-mig-1g-35gb.tranche.dev"))
			return w
		}},
		"all-of-a-node": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 2).hold("node-a", "team-b", "train", small, 1)
			r := request("gpu", wholeGPU)
			r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
			w.pod(r)
			return w
		}},
		"extended-resource": {why.NoRoom, func(t *testing.T) *world {
			w := twoNodes(t).hold("node-a", "team-b", "train", wholeGPU, 2).node("node-c", "H100-80GB", 1)
			w.in.Nodes[2].Status.Allocatable = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}
			w.in.Pod = podNamed("pod")
			w.in.Pod.Spec.InitContainers = []corev1.Container{{Name: "load"}}
			for _, c := range []*corev1.Container{&w.in.Pod.Spec.InitContainers[0], &w.in.Pod.Spec.Containers[0]} {
				c.Resources.Requests = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1"), "cpu": resource.MustParse("1")}
			}
			w.in.Nodes[2].Spec.Taints = nil
			return w
		}},
		"unknown-resource": {why.Invalid, func(t *testing.T) *world {
			w := twoNodes(t)
			w.in.Pod = podNamed("pod")
			w.in.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/mig-1g.99gb": resource.MustParse("1")}
			return w
		}},
		"no-devices": {why.NoDevices, func(t *testing.T) *world {
			w := twoNodes(t)
			w.in.Pod = podNamed("pod")
			w.refused("0/2 nodes are available: 2 Insufficient cpu.")
			return w
		}},
		"room-now": {why.RoomNow, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", small))
			return w
		}},
		"room-but-no-cpu": {why.RoomNow, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", small)).Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("1Ti")}
			w.refused("0/2 nodes are available: 1 Insufficient cpu, 1 cannot allocate all claims.")
			return w
		}},
		"room-but-anti-affinity": {why.RoomNow, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", small)).Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}},
			}}
			w.refused("0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1 cannot allocate all claims.")
			return w
		}},
		"room-but-volumes-and-topology": {why.RoomNow, func(t *testing.T) *world {
			w := twoNodes(t)
			spec := &w.pod(request("gpu", small)).Spec
			spec.Volumes = []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			}
			spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
				{TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule},
				{TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.ScheduleAnyway},
			}
			spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
			w.refused("0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 cannot allocate all claims.")
			return w
		}},
		"no-class": {why.Invalid, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", "gpu-mig-1g-99gb.tranche.dev"))
			return w
		}},
		"failing-selector": {why.Unknown, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			r := request("gpu", small)
			r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].colour == "red"`}}}
			w.pod(r)
			return w
		}},
		"no-template": {why.ClaimMissing, func(t *testing.T) *world {
			w := twoNodes(t)
			pod := w.pod()
			w.in.Claims, pod.Status.ResourceClaimStatuses = nil, nil
			w.in.Templates = []resourceapi.ResourceClaimTemplate{}
			return w
		}},
		"quota-for-claims": {why.ClaimMissing, func(t *testing.T) *world {
			w := twoNodes(t)
			pod := w.pod()
			w.in.Claims, pod.Status.ResourceClaimStatuses = nil, nil
			w.in.Events = []corev1.Event{warning("Pod", "pod", "FailedResourceClaimCreation", "resource_claim",
				`PodResourceClaim gpu: create ResourceClaim: resourceclaims.resource.k8s.io "pod-gpu-x" is forbidden: exceeded quota: gpus`)}
			return w
		}},
		"other-claims-hidden": {why.Unknown, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", small))
			w.in.Partial, w.in.Nodes = true, nil
			w.hide(why.ResourceClaims, why.ResourceNodes)
			return w
		}},
		"classes-hidden": {why.Unknown, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", small))
			w.in.Classes = nil
			return w
		}},
		// A tenant sees neither classes nor nodes.
		"classes-hidden-extended-resource": {why.Unknown, func(t *testing.T) *world {
			w := twoNodes(t)
			w.in.Pod = podNamed("pod")
			w.in.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1"), "cpu": resource.MustParse("1")}
			w.refused("0/2 nodes are available: 2 Insufficient nvidia.com/mig-1g.10gb.")
			w.in.Classes, w.in.Nodes, w.in.Slices, w.in.Partial = nil, nil, nil, true
			return w
		}},
		"classes-hidden-no-devices": {why.NoDevices, func(t *testing.T) *world {
			w := twoNodes(t)
			w.in.Pod = podNamed("pod")
			w.in.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1"), "example.com/nic": resource.MustParse("1")}
			w.in.Nodes[0].Status.Allocatable = corev1.ResourceList{"example.com/nic": resource.MustParse("4")}
			w.in.Classes = nil
			return w
		}},
		"wrong-selector": {why.Unknown, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			r := request("gpu", small)
			r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.colour == "red"`}}}
			w.pod(r)
			return w
		}},
		"no-gpus": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t)
			w.in.Slices = []resourceapi.ResourceSlice{}
			w.pod(request("gpu", small))
			return w
		}},
		"gated": {why.Gated, func(t *testing.T) *world {
			w := twoNodes(t)
			w.pod(request("gpu", small)).Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			return w
		}},
		"follows-its-claim": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1).node("node-b", "H100-80GB", 1)
			w.pod(request("gpu", small))
			w.placed("node-b").Spec.NodeName = ""
			w.refused("0/2 nodes are available: 1 Insufficient memory.")
			return w
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := test.world(t).explain()
			assert.Equal(t, test.state, e.State)
			requireText(t, name, e)
		})
	}
}
