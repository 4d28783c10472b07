package fit_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/pending"
)

// TestNodes: what is said of nodes that cannot serve a pod.
func TestNodes(t *testing.T) {
	static := v1beta1.Rule{MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "1g.10gb"}}}}
	draining := func(w *pending.World) *gpunodes.Node {
		return gpunodes.WithProfile("node-a", "dynamic").Switches(v1beta1.Draining, "all-1g.10gb", "evicts pods", w.GPUOf("node-a"))
	}
	for name, world := range map[string]func(*testing.T) *pending.World{
		"full-with-room-for-others": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Hold("node-a", "team-b", "train", pending.Small, 8)
			w.Pod(pending.Request("gpu", pending.WholeGPU))
			w.In.Pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node-a"}
			return w
		},
		"tainted": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Rules = []resourceapi.DeviceTaintRule{pending.TaintRule(w.In.Slices[0].Spec.Pool.Name)}
			w.Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"amd-other-mode-excluded": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-b", "MI300X", 1).Hold("node-b", "team-b", "rank", pending.CPX, 8)
			w.Pod(pending.Request("gpu", pending.DPX)).Spec.NodeSelector = map[string]string{"disk": "ssd"}
			return w
		},
		"amd-both-modes": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Node("node-b", "MI300X", 3)
			w.Hold("node-b", "team-b", "rank", pending.CPX, 3).Hold("node-b", "team-c", "half", pending.DPX, 2).Hold("node-b", "team-d", "all", "gpu-amd.tranche.dev", 1)
			w.Pod(pending.Request("gpu", pending.DPX))
			return w
		},
		"amd-no-such-mode": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-b", "MI300X", 1)
			w.Pod(pending.Request("gpu", "gpu-xcp-tpx.tranche.dev"))
			return w
		},
		"amd-any-partition": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Node("node-b", "MI300X", 1)
			w.Hold("node-b", "team-b", "rank", pending.CPX, 8).Hold("node-a", "team-c", "all", pending.WholeGPU, 1)
			w.Pod(pending.Request("gpu", "gpu-partition.tranche.dev"))
			return w
		},
		"amd-half-beside-eighths": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-b", "MI300X", 1)
			w.Pod(pending.Request("a", pending.CPX), pending.Request("b", pending.DPX))
			w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
			return w
		},
		"amd-whole-gpu": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-b", "MI300X", 1).Hold("node-b", "team-b", "rank", pending.CPX, 3)
			w.Pod(pending.Request("gpu", pending.WholeGPU))
			return w
		},
		"tolerated": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Rules = []resourceapi.DeviceTaintRule{pending.TaintRule(w.In.Slices[0].Spec.Pool.Name)}
			r := pending.Request("gpu", pending.Small)
			r.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "example.com/maintenance", Operator: resourceapi.DeviceTolerationOpExists}}
			w.Pod(r)
			return w
		},
		"other-nodes-wanted": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Node("node-c", "H100-80GB", 1)
			pod := w.Pod(pending.Request("gpu", pending.Small))
			pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"one", "two"}}},
				}}},
			}}
			w.In.Nodes[0].Labels["zone"] = "one"
			w.In.Nodes[2].Labels["zone"], w.In.Nodes[2].Labels["disk"] = "two", "ssd"
			w.In.Nodes[2].Spec.Taints = []corev1.Taint{
				{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
				{Key: "gpu", Value: "reserved", Effect: corev1.TaintEffectNoExecute},
				{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule},
			}
			pod.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
			return w
		},
		"no-such-device-anywhere": lackingEverywhere,
		"being-published": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Slices = w.In.Slices[:1]
			w.Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"one-gpu-has-not-both": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 2).Hold("node-a", "team-b", "train", "gpu-mig-4g-40gb.tranche.dev", 2)
			w.Pod(pending.Request("a", pending.Three), pending.Request("b", pending.Three))
			w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
			return w
		},
		"more-than-a-gpu": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 2)
			w.Pod(pending.Request("a", pending.Three), pending.Request("b", pending.Three), pending.Request("c", pending.Three))
			w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
			return w
		},
		"too-many": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			r := pending.Request("gpu", pending.WholeGPU)
			r.Exactly.Count = 3
			w.Pod(r)
			return w
		},
		"several": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 3).Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
			r := pending.Request("gpu", pending.WholeGPU)
			r.Exactly.Count = 3
			w.Pod(r)
			return w
		},
		"all-of-a-node": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 2).Hold("node-a", "team-b", "train", pending.Small, 1)
			r := pending.Request("gpu", pending.WholeGPU)
			r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
			w.Pod(r)
			return w
		},
		"wrong-selector": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			r := pending.Request("gpu", pending.Small)
			r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.colour == "red"`}}}
			missing := pending.Request("missing", pending.Small)
			missing.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].colour == "red"`}}}
			w.Pod(r, missing)
			return w
		},
		"switch-rolls-back": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.Switched("node-a", "all-1g.10gb")
			n := draining(w)
			n.Status.State = v1beta1.RollingBack
			w.GPUNodes(n).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"switch-unreadable": func(t *testing.T) *pending.World { // nobody may read GPUNodes, or they are late
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.Switched("node-a", "none")
			w.Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"switch-of-the-whole-node": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Nodes[0].Spec.Taints = []corev1.Taint{{Key: names.TaintNodeSwitching, Value: "all-1g.10gb", Effect: corev1.TaintEffectNoSchedule}}
			w.GPUNodes(draining(w)).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"switch-waits": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
			w.GPUNodes(gpunodes.WithProfile("node-a", "whole").Switches(v1beta1.Waiting, "all-1g.10gb", "waits for other nodes", w.GPUOf("node-a"))).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"switch-withheld": func(t *testing.T) *pending.World { // AMD's driver is reloaded
			w := newWorld(t).Node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld = true })
			w.GPUNodes(gpunodes.WithProfile("node-a", "spx").Switches(v1beta1.Applying, "cpx-nps4", ""),
				gpunodes.WithProfile("node-c", "spx").Switches(v1beta1.Applying, "", ""), gpunodes.WithProfile("node-d", "spx"),
				gpunodes.WithProfile("node-b", "spx").Switches(v1beta1.Applying, "", "")).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"switch-withholds-free": func(t *testing.T) *pending.World { // a claim tolerates the taint
			w := newWorld(t).Node("node-a", "H100-80GB", 1, pending.Only("3g.40gb"))
			n := draining(w)
			n.Status.Switch.Withhold = true
			w.GPUNodes(n).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"switch-failed": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
			w.GPUNodes(gpunodes.WithProfile("node-a", "whole").Fails("all-1g.10gb", "DrainDeadline", "not all pods left the GPUs within 10m0s: pod team-b/train-0", true)).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"profile-offers-no": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-b", "H100-80GB", 1, pending.Only("1g.10gb"))
			w.GPUNodes(gpunodes.WithProfile("node-b", "all-1g.10gb", static)).Pod(pending.Request("gpu", pending.Three))
			return w
		},
		"profile-conflict": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld = true })
			w.GPUNodes(gpunodes.WithProfile("node-a", "").Says(names.ConditionConflicted, true, "OtherSystem", "other systems serve GPUs of the node: mig-manager")).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"larger-than-the-node": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small)).Spec.Containers[0].Resources.Requests = pending.Resources("cpu", "64", "memory", "2Ti")
			w.In.Nodes[0].Status.Allocatable = pending.Resources("cpu", "64", "memory", "1Ti")
			return w
		},
		"device-plugin-elsewhere": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Hold("node-a", "team-b", "train", pending.WholeGPU, 2).Node("node-c", "H100-80GB", 1)
			w.In.Pod = pending.PodNamed("pod")
			w.In.Pod.Spec.InitContainers = []corev1.Container{{Name: "load"}, {Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			w.In.Pod.Spec.InitContainers[0].Resources.Requests = pending.Resources("nvidia.com/mig-1g.10gb", "3", "nvidia.com/gpu", "0")
			w.In.Pod.Spec.InitContainers[1].Resources.Requests = pending.Resources("nvidia.com/mig-1g.10gb", "1")
			w.In.Pod.Spec.Containers[0].Resources.Requests = pending.Resources("nvidia.com/mig-1g.10gb", "1", "nvidia.com/mig-3g.40gb", "1")
			w.In.Nodes = append(w.In.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-d"}})
			w.In.Nodes[2].Status.Allocatable = pending.Resources("nvidia.com/mig-1g.10gb", "7")
			w.In.Nodes[3].Status.Allocatable = pending.Resources("nvidia.com/mig-1g.10gb", "5")
			return w
		},
		"one-is-withheld": func(t *testing.T) *pending.World {
			w, n := newWorld(t), 0
			w.Node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld, n = n == 1, n+1 })
			w.Pod(allocator.Request("gpu", pending.WholeGPU, 2))
			return w
		},
		"as-far-as-a-tenant-may-see": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Partial = true
			w.Pod(pending.Request("gpu", pending.WholeGPU))
			return w
		},
		"others-monitor": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
			r := allocator.Request("gpu", pending.Small, 2)
			r.Exactly.AdminAccess = ptr.To(true)
			w.Pod(r, pending.AnyOf("more", pending.WholeGPU, pending.Three))
			return w
		},
		"no-linked-GPUs": func(t *testing.T) *pending.World {
			return linked(newWorld(t).Node("node-a", "L4-24GB", 2))
		},
		"linked-GPUs-held": func(t *testing.T) *pending.World {
			return linked(newWorld(t).Node("node-a", "H100-80GB", 2).Hold("node-a", "team-b", "train", pending.WholeGPU, 1))
		},
		"different-GPUs": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.Pod(pending.Request("a", pending.Small), pending.Request("b", pending.Small))
			w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{
				{DistinctAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID")), Requests: []string{"a", "b"}},
				{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/productName"))},
				{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/architecture")), Requests: []string{"a"}},
			}
			return w
		},
		// The plugin there is older, or writes no resources.
		"requests-nothing-to-request": func(t *testing.T) *pending.World { return requesting(newWorld(t).TwoNodes()) },
		// A kubelet has set it to zero, or other GPUs are gone.
		"requests-too-much": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.In.Nodes[0].Status.Allocatable = pending.Requests("5Gi", "0")
			return requesting(w)
		},
		// nvidia.com/gpu was a whole GPU when half was created.
		"requests-more-than-a-share": func(t *testing.T) *pending.World {
			fraction := func(amount string) resourceapi.DeviceRequest {
				return pending.Amounting(pending.FractionShare, "fraction", amount)
			}
			w := newWorld(t).Node("node-a", "H100-80GB", 1, pending.Sharing(false))
			w.HoldShare("node-a", "half", fraction("0.5")).HoldShare("node-a", "quarter", fraction("0.25"))
			w.In.Nodes[0].Status.Allocatable = pending.Requests("80Gi", "1k")
			w.Requesting("node-a", "team-b", "half", pending.Requests("0", "1k")).Requesting("node-a", "team-b", "quarter", pending.Requests("0", "250"))
			w.Pod(fraction("0.25")).Spec.Containers[0].Resources.Requests = pending.Requests("0", "250")
			return w
		},
		"requests-full-devices-free": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Hold("node-a", "team-b", "serve", pending.Small, 1).Hold("node-a", "team-b", "train", pending.Three, 1)
			w.In.Nodes[0].Status.Allocatable = pending.Requests("80Gi", "1k")
			w.Requesting("node-a", "team-b", "serve-0", pending.Requests("9728Mi", "142")).Requesting("node-a", "team-b", "train-0", pending.Requests("40448Mi", "428"))
			return requesting(w.Requesting("node-a", "team-c", "gone", pending.Requests("30Gi", "428")).Requesting("node-b", "team-c", "there", pending.Requests("30Gi", "1k")))
		},
		"volume-and-claim-elsewhere": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes()
			w.Pod(pending.Request("gpu", pending.Small))
			w.Placed("node-a").Spec.NodeName = ""
			w.In.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			w.In.Storage.Claims = []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
			}}
			w.In.Storage.Volumes = []corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-b"}}},
				}, {
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}},
					MatchFields:      []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-c"}}},
				}}}},
			}}}
			return w
		},
		"selectors": func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Node("node-c", "A100-80GB", 1).Node("node-d", "L4-24GB", 1).Node("node-e", "H200-141GB", 1)
			const nvidiaGPU, gpu = "gpu-nvidia.tranche.dev", `device.attributes["gpu.tranche.dev"]`
			r := func(name, class string, expressions ...string) resourceapi.DeviceRequest {
				r := pending.Request(name, class)
				for _, e := range expressions {
					r.Exactly.Selectors = append(r.Exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
				}
				return r
			}
			w.Pod(
				r("large", nvidiaGPU, gpu+`.vendor == "nvidia"`, `device.capacity["gpu.tranche.dev"].memory.compareTo(quantity("500Gi")) >= 0`),
				r("product", nvidiaGPU, gpu+`.productName == "H100"`), r("version", nvidiaGPU, gpu+`.driverVersion.isGreaterThan(semver("999.0.0"))`),
				r("number", pending.Small, gpu+`.placementStart > 7`),
			)
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireNodes(t, name, world(t))
		})
	}
}

// requesting adds a pod that requests what its claim holds.
func requesting(w *pending.World) *pending.World {
	w.Pod(pending.Request("gpu", pending.Small)).Spec.Containers[0].Resources.Requests = pending.Requests("9728Mi", "142")
	return w
}

// linked adds a pod with a claim for two GPUs that are linked.
func linked(w *pending.World) *pending.World {
	two := pending.Request("gpus", pending.WholeGPU)
	two.Exactly.Count = 2
	w.Pod(two)
	w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/linkGroup"))}}
	return w
}
