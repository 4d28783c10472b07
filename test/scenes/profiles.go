package scenes

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// Following are nodes that follow profiles: one whose cards are all in one mode, one
// whose cards are not, and one of which nothing is known.
func Following() Scene {
	in := Scene{Objects: cluster.Objects{Now: gpunodes.Now, Slices: append(append(Cards("node-a", 2, H100), Cards("node-b", 2, MI300X)...), Cards("node-c", 1, L4)...)}}
	b := gpunodes.Follows("node-b", "mixture").Cards("CPX NPS4", CardOf(0)).Cards("SPX NPS4", CardOf(1))
	b.Status.Node.Cards[1].Pending = "when no share of the card is held: 4 replicas in place of 10"
	in.GPUNodes = []v1alpha1.GPUNode{b.GPUNode,
		gpunodes.Follows("node-a", "dynamic").Cards("MIG on", CardOf(0), CardOf(1)).GPUNode,
		gpunodes.Follows("node-z", "dynamic").Cards("MIG on", CardOf(0)).GPUNode, // publishes nothing, and nobody minds
	}
	in.Claims = []resourceapi.ResourceClaim{Claim("team", "rank-0", "node-b", 0, XCP(0, "cpx", 0))}
	return in
}

// Switching is a node that is drained, one whose driver is loaded anew, and one that
// another system serves.
func Switching() Scene {
	in := Scene{Objects: cluster.Objects{Now: gpunodes.Now, Slices: Cards("node-a", 3, H100)}}
	doing := "asks pods to leave " + CardOf(0) + ": pod team/train-0 (" + MIG(0, "3g.40gb", 0) + ") is not evicted: budget team/train allows no eviction; " +
		"until 14:05:00 UTC at the latest, then it is given up and everything stays as it is"
	a := gpunodes.Follows("node-a", "whole").Cards("MIG on", CardOf(0)).Cards("MIG off", CardOf(1), CardOf(2)).
		Switches(v1alpha1.Draining, "all-1g.10gb", doing, CardOf(0), CardOf(1)).Plan("removal of 3g.40gb x 2, partitions 1g.10gb x 7").
		Says(v1alpha1.ConditionOverruled, true, "LabelHolds", "the node's label tranche.dev/profile=all-1g.10gb holds; spec.profile whole of the GPUNode does not, until the label is taken off")
	a.Status.Node.Cards[2].Problem = "it does not answer"
	b := gpunodes.Follows("node-b", "spx").Cards("SPX NPS1", CardOf(0)).
		Switches(v1alpha1.Applying, "cpx-nps4", "the node's plugin changes "+CardOf(0)+" (memory mode NPS4)", CardOf(0))
	c := gpunodes.Follows("node-c", "").Cards("", CardOf(0)).Says(v1alpha1.ConditionReady, false, "Conflict", "other systems serve cards").
		Says(v1alpha1.ConditionConflict, true, "OtherOwner", "other systems serve cards of the node, so their modes and partitions are left alone: mig-manager")
	in.GPUNodes = []v1alpha1.GPUNode{a.GPUNode, b.GPUNode, c.GPUNode}
	in.Claims = []resourceapi.ResourceClaim{Claim("team", "train-0", "node-a", 0, MIG(0, "3g.40gb", 0))}
	repartitioning := resourceapi.DeviceTaint{Key: "tranche.dev/repartitioning", Value: "all-1g.10gb", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	pool := "node-a/" + CardOf(0)
	in.Rules = []resourceapi.DeviceTaintRule{{Spec: resourceapi.DeviceTaintRuleSpec{DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: &pool}, Taint: repartitioning}}}
	in.Rules[0].Name = "tranche-node-a-" + CardOf(0)
	return in
}

// SwitchFailed is a scene.
func SwitchFailed() Scene {
	in := Scene{Objects: cluster.Objects{Now: gpunodes.Now, Slices: Cards("node-b", 1, MI300X)}}
	in.GPUNodes = []v1alpha1.GPUNode{gpunodes.Follows("node-b", "spx").Cards("SPX NPS1", CardOf(0)).
		Fails("cpx-nps4", "HardwareFailed", "the driver was loaded anew and is in NPS1 still", true).GPUNode}
	return in
}
