package publisher

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// offered returns the GPUs of which devices can be allocated, and these devices.
func offered(gpus []publish.GPU) (out []gpu.GPU) {
	for i := range gpus {
		g := &gpus[i]
		if g.Withheld || isBarred(g.Taints) {
			continue
		}
		left := g.GPU
		left.Placements = slices.DeleteFunc(slices.Clone(left.Placements), func(p gpu.Placement) bool {
			return isBarred(g.DeviceTaints[p.Name()]) || g.WholeOnly && p.Type != gpu.TypeGPU
		})
		out = append(out, left)
	}
	return out
}

// unavailable returns why no device of a GPU can be allocated.
func unavailable(g *publish.GPU) (reasons []string) {
	if g.Withheld {
		reasons = append(reasons, telemetry.Withheld)
	}
	for _, t := range g.Taints {
		if isBarred([]resourceapi.DeviceTaint{t}) {
			_, name, _ := strings.Cut(t.Key, "/")
			reasons = append(reasons, name)
		}
	}
	return reasons
}

// isBarred reports whether taints keep a device from being allocated to claims that tolerate
// nothing.
func isBarred(taints []resourceapi.DeviceTaint) bool {
	return slices.ContainsFunc(taints, func(t resourceapi.DeviceTaint) bool { return t.Effect != resourceapi.DeviceTaintEffectNone })
}
