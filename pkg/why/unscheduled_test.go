package why_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/pending"
)

// requesting adds the pod, with what it requests for a small partition.
func requesting(w *pending.World) *pending.World {
	w.Pod(pending.Request("gpu", pending.Small)).Spec.Containers[0].Resources.Requests = pending.Requests("9728Mi", "142")
	w.Refused("0/1 nodes are available: 1 Insufficient tranche.dev/gpu-compute, 1 Insufficient tranche.dev/gpu-memory.")
	return w
}

// TestUnscheduled: each way in which a pod can wait for a device, and the words
// for it.
func TestUnscheduled(t *testing.T) {
	for name, world := range map[string]func(*testing.T) *pending.World{
		"no-such-profile": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", "gpu-mig-1g-35gb.tranche.dev"))
			return w
		},
		"full": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Hold("node-a", "team-b", "train", pending.Small, 7).Hold("node-a", "team-a", "serve", pending.Three, 1)
			w.Hold("node-a", "team-c", "eval", "gpu-mig-4g-40gb.tranche.dev", 1)
			w.Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"amd-other-mode": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-b", "MI300X", 2)
			w.Hold("node-b", "team-b", "rank", pending.CPX, 8).Hold("node-b", "team-c", "notebook", pending.CPX, 1)
			w.Pod(pending.Request("gpu", pending.DPX))
			return w
		},
		"amd-busy": func(t *testing.T) *pending.World {
			busy := func(g *publish.GPU) {
				g.DeviceTaints = map[string][]resourceapi.DeviceTaint{}
				for _, p := range g.Placements {
					if p.Profile != "cpx" {
						g.DeviceTaints[p.Name()] = []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/busy", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
					}
				}
			}
			w := newWorld(t).Node("node-b", "MI300X", 1, busy)
			w.In.NodeEvents = []corev1.Event{pending.Warning("Node", "node-b", "GPUBusy", "gpu.tranche.dev", "GPU gpu-0000-11-00-0: cannot allocate dpx-0, dpx-1 now: the GPU stays in mode CPX as long as process 4711 (python3) uses it")}
			w.Pod(pending.Request("gpu", pending.DPX))
			return w
		},
		"unhealthy": func(t *testing.T) *pending.World {
			sick := func(g *publish.GPU) {
				g.Taints = []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/unhealthy", Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute}}
			}
			w := newWorld(t).Node("node-a", "H100-80GB", 1, sick).Node("node-b", "L4-24GB", 1)
			w.Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"withheld": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld = true })
			w.In.NodeEvents = []corev1.Event{
				pending.Warning("Node", "node-a", "OtherSystem", "gpu.tranche.dev", "Tranche does not offer the NVIDIA GPUs of this node, because a device plugin serves nvidia.com/gpu: 8 here. To let Tranche have them, keep the NVIDIA device plugin off this node (with the GPU operator: label nvidia.com/gpu.deploy.device-plugin=false); to publish them in spite of that, set ignoreOtherSystems=true in the chart"),
				pending.Warning("Node", "node-a", "Rebooted", "kubelet", "not ours"),
				pending.Warning("Node", "node-b", "OtherSystem", "gpu.tranche.dev", "another node"),
			}
			w.Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"first-available": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Hold("node-a", "team-b", "train", pending.Three, 4)
			w.Pod(pending.AnyOf("gpu", pending.Three, "gpu-mig-1g-35gb.tranche.dev"))
			return w
		},
		"extended-resource": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Hold("node-a", "team-b", "train", pending.WholeGPU, 2).Node("node-c", "H100-80GB", 1)
			w.In.Nodes[2].Status.Allocatable = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}
			w.In.Pod = pending.PodNamed("pod")
			w.In.Pod.Spec.InitContainers = []corev1.Container{{Name: "load"}}
			for _, c := range []*corev1.Container{&w.In.Pod.Spec.InitContainers[0], &w.In.Pod.Spec.Containers[0]} {
				c.Resources.Requests = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1"), "cpu": resource.MustParse("1")}
			}
			w.In.Nodes[2].Spec.Taints = nil
			return w
		},
		"unknown-resource": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.In.Pod = pending.PodNamed("pod")
			w.In.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/mig-1g.99gb": resource.MustParse("1")}
			return w
		},
		"no-devices": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.In.Pod = pending.PodNamed("pod")
			w.Refused("0/2 nodes are available: 2 Insufficient cpu.")
			return w
		},
		"room-now": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"room-but-no-cpu": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small)).Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("1Ti")}
			w.Refused("0/2 nodes are available: 1 Insufficient cpu, 1 cannot allocate all claims.")
			w.In.Pod.Spec.SchedulerName = "kai-scheduler" // it has reported something
			w.In.Pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(pending.Now.Add(-time.Hour))
			for i, ago := range []time.Duration{time.Minute, 2 * time.Hour, 0} { // the second is about an earlier condition
				e := pending.Warning("Pod", []string{"pod", "pod", "other"}[i], "FailedScheduling", "default-scheduler", "")
				e.Count, e.LastTimestamp = int32(5+i), metav1.NewTime(pending.Now.Add(-ago))
				w.In.Events = append(w.In.Events, e)
			}
			return w
		},
		"room-but-anti-affinity": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small)).Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}},
			}}
			w.Refused("0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1 cannot allocate all claims.")
			w.In.Pod.Status.Conditions = append([]corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "another"}}, w.In.Pod.Status.Conditions...)
			return w
		},
		"room-but-volumes-and-topology": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			spec := &w.Pod(pending.Request("gpu", pending.Small)).Spec
			spec.Volumes = []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			}
			spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
				{TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule},
				{TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.ScheduleAnyway},
			}
			spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
			w.Refused("0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 cannot allocate all claims.")
			return w
		},
		"requests-full-by-devices": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
			w.In.Nodes[0].Status.Allocatable = pending.Requests("80Gi", "1k")
			return requesting(w.Requesting("node-a", "team-b", "train-0", pending.Requests("80Gi", "1k")))
		},
		"requests-and-room": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Nodes[0].Status.Allocatable = pending.Requests("80Gi", "1k")
			return requesting(w.Requesting("node-a", "team-b", "serve-0", pending.Requests("40448Mi", "428")))
		},
		"requests-hidden": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Nodes[0].Status.Allocatable = pending.Requests("80Gi", "1k")
			requesting(w).Hide(why.ResourceRequests)
			return w
		},
		"no-class": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", "gpu-mig-1g-99gb.tranche.dev"))
			return w
		},
		"failing-selector": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			r := pending.Request("gpu", pending.Small)
			r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].colour == "red"`}}}
			w.Pod(r)
			return w
		},
		"no-template": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			pod := w.Pod()
			w.In.Claims, pod.Status.ResourceClaimStatuses = nil, nil
			w.In.Templates = []resourceapi.ResourceClaimTemplate{}
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedResourceClaimCreation", "resource_claim", "not found")}
			return w
		},
		"quota-for-claims": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			pod := w.Pod()
			w.In.Claims, pod.Status.ResourceClaimStatuses = nil, nil
			w.In.Events = []corev1.Event{pending.Warning("Pod", "pod", "FailedResourceClaimCreation", "resource_claim",
				`PodResourceClaim gpu: create ResourceClaim: resourceclaims.resource.k8s.io "pod-gpu-x" is forbidden: exceeded quota: gpus`)}
			return w
		},
		"other-claims-hidden": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small))
			w.In.Partial, w.In.Nodes = true, nil
			w.Hide(why.ResourceClaims, why.ResourceNodes)
			return w
		},
		"classes-hidden": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small))
			w.In.Classes = nil
			return w
		},
		// A tenant sees neither classes nor nodes.
		"classes-hidden-extended-resource": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.In.Pod = pending.PodNamed("pod")
			w.In.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1"), "cpu": resource.MustParse("1")}
			w.Refused("0/2 nodes are available: 2 Insufficient nvidia.com/mig-1g.10gb.")
			w.In.Classes, w.In.Nodes, w.In.Slices, w.In.Partial = nil, nil, nil, true
			return w
		},
		"classes-hidden-no-devices": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.In.Pod = pending.PodNamed("pod")
			w.In.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1"), "example.com/nic": resource.MustParse("1")}
			w.In.Nodes[0].Status.Allocatable = corev1.ResourceList{"example.com/nic": resource.MustParse("4")}
			w.In.Classes = nil
			return w
		},
		"no-gpus": func(t *testing.T) *pending.World {
			w := newWorld(t)
			w.In.Slices = []resourceapi.ResourceSlice{}
			w.Pod(pending.Request("gpu", pending.Small))
			w.Hide(why.ResourceGPUNodes)
			return w
		},
		"gated": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small)).Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			return w
		},
		"follows-its-claim": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Node("node-b", "H100-80GB", 1)
			w.Pod(pending.Request("gpu", pending.Small))
			w.Placed("node-b").Spec.NodeName = ""
			w.Refused("0/2 nodes are available: 1 Insufficient memory.")
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireText(t, name, world(t).Explain())
		})
	}
}

// TestNodeEvents: warnings are quoted unless a later event ended them, or they are about pods that run.
func TestNodeEvents(t *testing.T) {
	tainted := func(g *publish.GPU) {
		g.Taints = []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/unhealthy", Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute}}
	}
	event := func(reason string, ago time.Duration) corev1.Event {
		e := pending.Warning("Node", "node-a", reason, names.DriverName, reason)
		e.LastTimestamp = metav1.NewTime(pending.Now.Add(-ago))
		if reason == names.EventGPUHealthy || reason == names.EventDriverFound {
			e.Type = corev1.EventTypeNormal
		}
		return e
	}
	quoted := func(problem bool, events ...corev1.Event) []string {
		w := newWorld(t).Node("node-a", "H100-80GB", 1, tainted)
		w.Pod(pending.Request("gpu", pending.Small))
		w.In.NodeEvents = events
		node := gpunodes.WithProfile("node-a", "dynamic").GPUs(gpunodes.MIGOn, w.GPUOf("node-a"))
		if problem {
			node.Status.Node.GPUs[0].Problems = []v1beta1.GPUProblem{{Cause: "lost"}}
		}
		w.In.GPUNodes = append(w.In.GPUNodes, node.GPUNode)
		return lists.Map(slices.DeleteFunc(w.Explain().Quotes, func(q why.Quote) bool { return q.Object.Kind != "Node" }), func(q why.Quote) string { return q.Reason })
	}
	unhealthy, healthy := event(names.EventGPUUnhealthy, 2*time.Minute), event(names.EventGPUHealthy, time.Minute)
	assert.Equal(t, []string{names.EventGPUUnhealthy}, quoted(true, unhealthy), "it is not over")
	assert.Empty(t, quoted(false, unhealthy, healthy), "it is over")
	assert.Equal(t, []string{names.EventGPUUnhealthy}, quoted(true, unhealthy, healthy), "another GPU is healthy again")
	assert.Equal(t, []string{names.EventGPUUnhealthy}, quoted(false, event(names.EventGPUUnhealthy, time.Second), healthy), "it came again")
	elsewhere, byAnother := healthy, healthy
	elsewhere.InvolvedObject.Name, byAnother.ReportingController = "node-b", "kubelet"
	assert.Equal(t, []string{"Other", names.EventGPUUnhealthy}, quoted(false, unhealthy, elsewhere, byAnother, event("Other", 0)))
	assert.Empty(t, quoted(true, event(names.EventHardwareUnusable, 2*time.Minute), event(names.EventDriverFound, time.Minute)))
	assert.Empty(t, quoted(true, event(names.EventSharesNotLimited, time.Minute)), "a pod that waits does not need to know")
}
