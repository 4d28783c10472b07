package scenes

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// Following are nodes that follow profiles: one whose GPUs are all in one mode, one
// whose GPUs are not, and one of which nothing is known.
func Following() Scene {
	in := Scene{Objects: cluster.Objects{Now: gpunodes.Now, Slices: append(append(GPUs("node-a", 2, H100), GPUs("node-b", 2, MI300X)...), GPUs("node-c", 1, L4)...)}}
	b := gpunodes.WithProfile("node-b", "mixture").GPUs(gpunodes.XCP("CPX", "NPS4"), GPUOf(0)).GPUs(gpunodes.XCP("SPX", "NPS4"), GPUOf(1))
	b.Status.Node.GPUs[1].Pending = "when no share of the GPU is held: 4 replicas in place of 10"
	in.GPUNodes = []v1beta1.GPUNode{b.GPUNode,
		gpunodes.WithProfile("node-a", "dynamic").GPUs(gpunodes.MIGOn, GPUOf(0), GPUOf(1)).GPUNode,
		gpunodes.WithProfile("node-z", "dynamic").GPUs(gpunodes.MIGOn, GPUOf(0)).GPUNode, // its plugin is gone
	}
	in.Claims = []resourceapi.ResourceClaim{Claim("team", "rank-0", "node-b", 0, XCP(0, "cpx", 0))}
	return in
}

// Switching is a node that is drained, one whose driver is reloaded, and one that
// another system serves.
func Switching() Scene {
	in := Scene{Objects: cluster.Objects{Now: gpunodes.Now, Slices: GPUs("node-a", 3, H100)}}
	doing := "evicts pods from " + GPUOf(0) + ": pod team/train-0 (" + MIG(0, "3g.40gb", 0) + ") is not evicted: budget team/train allows no eviction; " +
		"until 14:05:00 UTC at the latest, then it is canceled and the GPUs stay as they are"
	a := gpunodes.WithProfile("node-a", "whole").GPUs(gpunodes.MIGOn, GPUOf(0)).GPUs(gpunodes.MIGOff, GPUOf(1), GPUOf(2)).
		Switches(v1beta1.Draining, "all-1g.10gb", doing, GPUOf(0), GPUOf(1)).Plan("removal of 3g.40gb x 2, partitions 1g.10gb x 7").
		Says(names.ConditionOverridden, true, "LabelHolds", "the node's label tranche.dev/profile=all-1g.10gb has precedence over spec.profileName whole of the GPUNode; remove one of them")
	a.Status.Node.GPUs[2].Problems = []v1beta1.GPUProblem{{Cause: "no-answer", Message: "it does not answer"}}
	b := gpunodes.WithProfile("node-b", "spx").GPUs(gpunodes.XCP("SPX", "NPS1"), GPUOf(0)).
		Switches(v1beta1.Applying, "cpx-nps4", "the node's plugin changes "+GPUOf(0)+" (memory mode NPS4)", GPUOf(0))
	c := gpunodes.WithProfile("node-c", "").GPUs(v1beta1.GPUModes{}, GPUOf(0)).Says(names.ConditionReady, false, "OtherSystem", "other systems serve GPUs").
		Says(names.ConditionConflicted, true, "OtherSystem", "other systems serve GPUs of the node, so Tranche does not change their modes and partitions: mig-manager")
	in.GPUNodes = []v1beta1.GPUNode{a.GPUNode, b.GPUNode, c.GPUNode}
	in.Claims = []resourceapi.ResourceClaim{Claim("team", "train-0", "node-a", 0, MIG(0, "3g.40gb", 0))}
	taint := resourceapi.DeviceTaint{Key: names.TaintSwitching, Value: "all-1g.10gb", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	for i := range in.Slices {
		for j := range in.Slices[i].Spec.Devices {
			if d := &in.Slices[i].Spec.Devices[j]; strings.HasPrefix(d.Name, GPUOf(0)) {
				d.Taints = append(d.Taints, taint)
			}
		}
	}
	return in
}

// SwitchFailed is a scene.
func SwitchFailed() Scene {
	in := Scene{Objects: cluster.Objects{Now: gpunodes.Now, Slices: GPUs("node-b", 1, MI300X)}}
	in.GPUNodes = []v1beta1.GPUNode{gpunodes.WithProfile("node-b", "spx").GPUs(gpunodes.XCP("SPX", "NPS1"), GPUOf(0)).
		Fails("cpx-nps4", "HardwareFailed", "the driver was reloaded and is in NPS1 still", true).GPUNode}
	return in
}
