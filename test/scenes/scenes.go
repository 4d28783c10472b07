package scenes

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Scene is what was read of a cluster, and what is shown of it.
type Scene struct {
	cluster.Objects
	View cluster.View
}

// Summary sums up the scene.
func (s Scene) Summary() *cluster.Summary {
	return cluster.New(s.Objects).Summary(context.Background(), s.View)
}

// All are the clusters whose pictures are kept in testdata, each at several
// widths. Look at the files: they are what people see.
var All = map[string]func() Scene{
	"no-gpus":       func() Scene { return Scene{} },
	"idle":          func() Scene { return Scene{Objects: cluster.Objects{Slices: GPUs("node-a", 8, H100)}} },
	"56-partitions": FullOfSmall,
	"mixed":         Mixed,
	"whole-gpus":    WholeGPUs,
	"tainted":       Tainted,
	"two-nodes":     TwoNodes,
	"unknown-type":  UnknownType,
	"unpublished":   Unpublished,
	"incomplete":    Incomplete,
	"hidden":        Hidden,
	"partial":       Partial,
	"amd":           AMD,
	"amd-busy":      AMDBusy,
	"both-vendors":  BothVendors,
	"shared":        Shared,
	"following":     Following,
	"switching":     Switching,
	"switch-failed": SwitchFailed,
}

// FullOfSmall is a scene.
func FullOfSmall() Scene {
	in := Scene{Objects: cluster.Objects{Slices: GPUs("node-a", 8, H100)}}
	for slot := range 8 {
		for start := range 7 {
			pod := fmt.Sprintf("small-%02d", slot*7+start)
			in.Claims = append(in.Claims, Claim("default", pod, "node-a", slot, MIG(slot, "1g.10gb", start)))
		}
	}
	in.Claims = append(in.Claims, WaitingClaim("default", "small-56-gpu-9qx4z", "gpu-mig-1g-10gb.tranche.dev", "small-56"))
	return in
}

// Mixed is a scene.
func Mixed() Scene {
	in := Scene{Objects: cluster.Objects{Slices: GPUs("node-a", 3, H100)}}
	shared := Claim("team-b", "train-0", "node-a", 0, MIG(0, "2g.20gb", 2))
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "train-1"})
	idle := Claim("team-b", "kept", "node-a", 1, MIG(1, "3g.40gb", 4))
	idle.Name, idle.Status.ReservedFor = "kept-for-later", nil
	monitor := Claim("monitoring", "dcgm-8fj2l", "node-a", 1, GPUOf(1)+"-monitor")
	Result(&monitor).AdminAccess = new(true)
	in.Claims = []resourceapi.ResourceClaim{
		Claim("default", "notebook", "node-a", 0, MIG(0, "1g.10gb+me", 0)),
		Claim("default", "vectoradd-6d8f9c7b4-abcde", "node-a", 0, MIG(0, "1g.10gb", 1)),
		shared, idle, monitor,
	}
	return in
}

// WholeGPUs is a scene.
func WholeGPUs() Scene {
	in := Scene{Objects: cluster.Objects{Slices: GPUs("node-a", 8, H100)}}
	for slot := range 7 {
		in.Claims = append(in.Claims, Claim("default", fmt.Sprintf("whole-%d", slot), "node-a", slot, GPUOf(slot)))
	}
	return in
}

// Tainted is a scene.
func Tainted() Scene {
	in := Scene{Objects: cluster.Objects{Slices: GPUs("node-a", 3, H100), Claims: []resourceapi.ResourceClaim{
		Claim("default", "train-0", "node-a", 0, MIG(0, "3g.40gb", 0)),
	}}}
	ofGPU := func(slot int) func(string) bool {
		return func(name string) bool { return strings.HasPrefix(name, GPUOf(slot)) }
	}
	Taint(in.Slices, ofGPU(0), resourceapi.DeviceTaint{Key: names.TaintUnhealthy, Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute})
	// Somebody else made a partition at the start of the second GPU.
	covered := func(name string) bool {
		return ofGPU(1)(name) && strings.HasSuffix(name, "-0") // the GPU's own name ends so, too
	}
	Taint(in.Slices, covered, resourceapi.DeviceTaint{Key: names.TaintForeignPartition, Value: "made-by-somebody-else", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	return in
}

// TwoNodes is a scene.
func TwoNodes() Scene {
	in := Scene{Objects: cluster.Objects{
		Slices: append(GPUs("node-b", 4, L4), GPUs("node-a", 2, H100)...),
		Nodes:  []corev1.Node{Node("node-a", corev1.ConditionTrue, false), Node("node-b", corev1.ConditionFalse, true)},
		Claims: []resourceapi.ResourceClaim{
			Claim("team-a", "infer-0", "node-b", 1, GPUOf(1)),
			Claim("team-a", "infer-1", "node-a", 0, MIG(0, "4g.40gb", 0)),
			WaitingClaim("team-b", "b-gpu", "gpu.tranche.dev", ""),
		},
	}}
	foreign := Claim("net", "fast", "node-a", 1, GPUOf(1))
	Result(&foreign).Driver = "nic.example.com"
	in.Claims = append(in.Claims, foreign)
	return in
}

// AMD has GPUs in two modes, one that is held whole, and a free one.
func AMD() Scene {
	in := Scene{Objects: cluster.Objects{Slices: GPUs("node-b", 4, MI300X)}}
	for i, pod := range []string{"rank-0", "rank-1", "rank-2", "rank-3", "notebook"} {
		in.Claims = append(in.Claims, Claim("team-a", pod, "node-b", 0, XCP(0, "cpx", i)))
	}
	in.Claims = append(in.Claims,
		Claim("team-b", "train", "node-b", 1, XCP(1, "dpx", 1)),
		Claim("team-b", "whole", "node-b", 2, GPUOf(2)),
		WaitingClaim("team-b", "half-gpu-9qx4z", "gpu-xcp-dpx.tranche.dev", "half"))
	return in
}

// AMDBusy has a GPU that a process outside Kubernetes keeps in its mode, and
// one of which a partition is missing.
func AMDBusy() Scene {
	in := Scene{Objects: cluster.Objects{Slices: GPUs("node-b", 2, MI300X)}}
	other := func(name string) bool {
		return strings.HasPrefix(name, GPUOf(0)) && !strings.Contains(name, "-cpx-")
	}
	Taint(in.Slices, other, resourceapi.DeviceTaint{Key: names.TaintBusy, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	missing := func(name string) bool { return name == XCP(1, "cpx", 7) }
	Taint(in.Slices, missing, resourceapi.DeviceTaint{Key: names.TaintUnhealthy, Value: string(gpu.CauseMissing), Effect: resourceapi.DeviceTaintEffectNoSchedule})
	in.Claims = append(in.Claims, Claim("team-a", "rank-0", "node-b", 1, XCP(1, "cpx", 0)))
	return in
}

// BothVendors is a claim that a GPU of either vendor satisfies, twice.
func BothVendors() Scene {
	return Scene{Objects: cluster.Objects{
		Slices: append(GPUs("node-a", 2, H100), GPUs("node-b", 2, MI300X)...),
		Claims: []resourceapi.ResourceClaim{
			Claim("default", "either-7d5b4-8k2lm", "node-a", 0, MIG(0, "1g.20gb", 6)),
			Claim("default", "either-7d5b4-x9z4q", "node-b", 0, XCP(0, "cpx", 0)),
		},
	}}
}

// UnknownType is what a GPU may look like whose driver says little, and a
// shared one.
func UnknownType() Scene {
	total := gpu.Counters{"memory": 192 << 30}
	var devices []resourceapi.Device
	for i := range 8 {
		d := Device(GPUOf(0), fmt.Sprintf("%s-cpx-%d", GPUOf(0), i), "AMD Instinct MI300X", "xcp", 0, gpu.Counters{"memory": 24 << 30})
		devices = append(devices, d)
	}
	devices = append(devices, Device(GPUOf(0), GPUOf(0)+"-spx-0", "AMD Instinct MI300X", "xcp", 0, total))
	share := Device(GPUOf(1), GPUOf(1)+"-memory-share", "NVIDIA L4", "share", 1, gpu.Counters{"memory": 24 << 30})
	share.AllowMultipleAllocations = new(bool)
	*share.AllowMultipleAllocations = true
	odd := Device(GPUOf(2), "quantum", "Odd One", "qpu", 2, nil)

	in := Scene{Objects: cluster.Objects{Slices: OnePool("node-a", GPUOf(0), total, devices...)}}
	in.Slices = append(in.Slices, OnePool("node-a", GPUOf(1), gpu.Counters{"memory": 24 << 30}, share)...)
	in.Slices = append(in.Slices, OnePool("node-a", GPUOf(2), nil, odd)...)
	for i, pod := range []string{"a", "b"} {
		c := Claim("default", pod, "node-a", 1, share.Name)
		Result(&c).ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(fmt.Sprintf("%dGi", 4+i))}
		in.Claims = append(in.Claims, c)
	}
	in.Claims = append(in.Claims,
		Claim("default", "c", "node-a", 0, GPUOf(0)+"-cpx-2"),
		Claim("default", "d", "node-a", 2, "quantum"))
	return in
}

// Unpublished is a scene.
func Unpublished() Scene {
	return Scene{Objects: cluster.Objects{Slices: GPUs("node-a", 1, H100), Claims: []resourceapi.ResourceClaim{
		Claim("default", "here", "node-a", 0, MIG(0, "1g.10gb", 0)),
		Claim("default", "gone", "node-a", 0, GPUOf(0)+"-mig-1g-5gb-3"),
		Claim("default", "lost", "node-z", 5, MIG(5, "3g.40gb", 0)),
	}}}
}

// Incomplete is a scene.
func Incomplete() Scene {
	in := Scene{Objects: cluster.Objects{Slices: GPUs("node-a", 2, H100)}}
	next := in.Slices[0]
	next.Name, next.Spec.Pool.Generation = "newer", 2
	in.Slices = append(in.Slices, next)
	return in
}

// Hidden is a scene.
func Hidden() Scene {
	in := FullOfSmall()
	in.View.Namespace = "team-a"
	in.Claims = append(in.Claims[:53], Claim("team-a", "mine", "node-a", 7, MIG(7, "1g.10gb", 6)))
	return in
}

// Partial is a scene.
func Partial() Scene {
	in := Mixed()
	in.Partial = true
	in.Unread = []text.Unread{{
		Resource: "resourceclaims.resource.k8s.io", Message: "you are allowed to list resourceclaims.resource.k8s.io in the namespace default only",
		Consequence: "holders in other namespaces and free capacity are not shown",
	}}
	return in
}
