package why_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// switched taints all devices of a node, as its plugin does during a switch.
func (w *world) switched(node, profile string) {
	for i := range w.in.Slices {
		if s := &w.in.Slices[i].Spec; *s.NodeName == node {
			for j := range s.Devices {
				s.Devices[j].Taints = append(s.Devices[j].Taints, resourceapi.DeviceTaint{
					Key: names.TaintRepartitioning, Value: profile, Effect: resourceapi.DeviceTaintEffectNoSchedule,
				})
			}
		}
	}
}

// gpusOf are the GPUs of a node.
func (w *world) gpusOf(node string) []string {
	var published []resourceapi.ResourceSlice
	for _, s := range w.published {
		published = append(published, *s)
	}
	return publish.GPUs(node, published)
}

// gpuOf is the first GPU of a node.
func (w *world) gpuOf(node string) string {
	w.t.Helper()
	gpus := w.gpusOf(node)
	require.NotEmpty(w.t, gpus, node)
	return gpus[0]
}

func (w *world) gpuNodes(all ...*gpunodes.Node) *world {
	w.in.Now = gpunodes.Now
	for _, n := range all {
		w.in.GPUNodes = append(w.in.GPUNodes, n.GPUNode)
	}
	return w
}

// only publishes the small partitions of a GPU, as with a profile of these.
func only(profile string) func(*publish.GPU) {
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

var static = v1beta1.Rule{MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "1g.10gb"}}}}

// TestSwitches: how a profile, or the way to one, keeps a pod waiting.
func TestSwitches(t *testing.T) {
	draining := func(w *world) *gpunodes.Node {
		return gpunodes.WithProfile("node-a", "dynamic").Switches(v1beta1.Draining, "all-1g.10gb", "evicts pods", w.gpuOf("node-a"))
	}
	for name, test := range map[string]struct {
		state why.State
		world func(*testing.T) *world
	}{
		"switch-draining": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1).node("node-b", "L4-24GB", 1)
			w.switched("node-a", "all-1g.10gb")
			w.gpuNodes(draining(w), gpunodes.WithProfile("node-b", "")).pod(request("gpu", small))
			return w
		}},
		"switch-rolls-back": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.switched("node-a", "all-1g.10gb")
			n := draining(w)
			n.Status.State = v1beta1.RollingBack
			w.gpuNodes(n).pod(request("gpu", small))
			return w
		}},
		"switch-unreadable": {why.NoRoom, func(t *testing.T) *world { // nobody may read GPUNodes, or they are late
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.switched("node-a", "none")
			w.pod(request("gpu", small))
			return w
		}},
		"switch-of-the-whole-node": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.in.Nodes[0].Spec.Taints = []corev1.Taint{{Key: names.TaintNodeRepartitioning, Value: "all-1g.10gb", Effect: corev1.TaintEffectNoSchedule}}
			w.gpuNodes(draining(w)).pod(request("gpu", small))
			return w
		}},
		"switch-waits": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1).hold("node-a", "team-b", "train", wholeGPU, 1)
			w.gpuNodes(gpunodes.WithProfile("node-a", "whole").Switches(v1beta1.Waiting, "all-1g.10gb", "waits for other nodes", w.gpuOf("node-a"))).pod(request("gpu", small))
			return w
		}},
		"switch-withheld": {why.NoRoom, func(t *testing.T) *world { // AMD's driver is reloaded
			w := newWorld(t).node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld = true })
			w.gpuNodes(gpunodes.WithProfile("node-a", "spx").Switches(v1beta1.Applying, "cpx-nps4", ""),
				gpunodes.WithProfile("node-b", "spx").Switches(v1beta1.Applying, "", "")).pod(request("gpu", small))
			return w
		}},
		"switch-withholds-free": {why.NoRoom, func(t *testing.T) *world { // a claim tolerates the taint
			w := newWorld(t).node("node-a", "H100-80GB", 1, only("3g.40gb"))
			n := draining(w)
			n.Status.Switch.Withhold = true
			w.gpuNodes(n).pod(request("gpu", small))
			return w
		}},
		"switch-failed": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1).hold("node-a", "team-b", "train", wholeGPU, 1)
			w.gpuNodes(gpunodes.WithProfile("node-a", "whole").Fails("all-1g.10gb", "DrainDeadline", "not all pods left the GPUs within 10m0s: pod team-b/train-0", true)).pod(request("gpu", small))
			return w
		}},
		"profile-offers-no": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-b", "H100-80GB", 1, only("1g.10gb"))
			w.gpuNodes(gpunodes.WithProfile("node-b", "all-1g.10gb", static)).pod(request("gpu", three))
			return w
		}},
		"profile-conflict": {why.NoRoom, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld = true })
			w.gpuNodes(gpunodes.WithProfile("node-a", "").Says(names.ConditionConflicted, true, "OtherOwner", "other systems serve GPUs of the node: mig-manager")).pod(request("gpu", small))
			return w
		}},
		"switch-under-a-pod": {why.Running, func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.gpuNodes(draining(w)).pod(request("gpu", small))
			w.placed("node-a").Status.Phase = corev1.PodRunning
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
