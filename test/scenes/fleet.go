package scenes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// Fleet has more nodes than people look at one by one, of three models, and some in trouble.
func Fleet() Scene {
	in := Scene{Objects: cluster.Objects{Now: gpunodes.Now, PodsKnown: true}}
	for i := range 12 {
		name := fmt.Sprintf("gpu-%02d", i)
		switch {
		case i < 6:
			in.Slices = append(in.Slices, GPUs(name, 4, H100)...)
			in.Claims = append(in.Claims, Claim("team-a", fmt.Sprintf("train-%d", i), name, 0, GPUOf(0)), Claim("team-b", fmt.Sprintf("infer-%d", i), name, 1, MIG(1, "1g.10gb", 6)))
			in.GPUNodes = append(in.GPUNodes, gpunodes.WithProfile(name, "balanced").GPUs(gpunodes.MIGOn, GPUOf(0), GPUOf(1), GPUOf(2), GPUOf(3)).GPUNode)
		case i < 9:
			in.Slices = append(in.Slices, GPUs(name, 2, MI300X)...)
			in.Claims = append(in.Claims, Claim("team-a", fmt.Sprintf("rank-%d", i), name, 0, XCP(0, "cpx", 0)))
		default:
			in.Slices = append(in.Slices, GPUs(name, 2, L4)...)
		}
		in.Nodes = append(in.Nodes, Node(name, corev1.ConditionTrue, i == 4))
	}
	in.Nodes[3] = Node("gpu-03", corev1.ConditionUnknown, false)
	in.GPUNodes[0] = gpunodes.WithProfile("gpu-00", "whole").GPUs(gpunodes.MIGOn, GPUOf(0)).Switches(v1beta1.Draining, "balanced", "evicts pods from "+GPUOf(0), GPUOf(0)).GPUNode
	in.GPUNodes[1] = gpunodes.WithProfile("gpu-01", "whole").GPUs(gpunodes.MIGOff, GPUOf(0)).
		Fails("balanced", "HardwareFailed", "GPU "+GPUOf(1)+": CreateGpuInstance: Unknown Error", true).GPUNode
	in.GPUNodes[5].Status.Node.GPUs[2].Problems = []v1beta1.GPUProblem{{Cause: "no-answer", Message: "it does not answer"}}
	onL4 := func(name string) bool { return name == GPUOf(1) }
	last := in.Slices[len(in.Slices)-2:]
	Taint(last, onL4, resourceapi.DeviceTaint{Key: names.TaintUnhealthy, Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute})
	in.Claims = append(in.Claims,
		Claim("team-c", "lost", "gpu-77", 0, GPUOf(0)),
		WaitingClaim("team-c", "big-gpu-9qx4z", "gpu-mig-7g-80gb.tranche.dev", "big"), WaitingClaim("team-c", "half-gpu-8kk2m", "gpu-mig-3g-40gb.tranche.dev", "half"))
	return in
}
