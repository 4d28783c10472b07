package why_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/pending"
)

// TestSwitches: how a profile, or the way to one, keeps a pod waiting.
func TestSwitches(t *testing.T) {
	draining := func(w *pending.World) *gpunodes.Node {
		return gpunodes.WithProfile("node-a", "dynamic").Switches(v1beta1.Draining, "all-1g.10gb", "evicts pods", w.GPUOf("node-a"))
	}
	for name, world := range map[string]func(*testing.T) *pending.World{
		"switch-draining": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1).Node("node-b", "L4-24GB", 1)
			w.Switched("node-a", "all-1g.10gb")
			w.GPUNodes(draining(w), gpunodes.WithProfile("node-b", "")).Pod(pending.Request("gpu", pending.Small))
			return w
		},
		"switch-under-a-pod": func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.GPUNodes(draining(w)).Pod(pending.Request("gpu", pending.Small))
			w.Placed("node-a").Status.Phase = corev1.PodRunning
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireText(t, name, world(t).Explain())
		})
	}
}
