package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// A pod whose device is gone holds it, unless its device may only be withheld.
func TestWhatVerificationFinds(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*v1beta1.GPUNodeStatus)
		differs string
		holds   bool
	}{
		"as ordered":                  {change: func(*v1beta1.GPUNodeStatus) {}, holds: true},
		"the order before":            {change: func(s *v1beta1.GPUNodeStatus) { s.Switch.TaintGeneration++ }, differs: "the plugin has not published the free devices again yet"},
		"the order before, applying":  {change: func(s *v1beta1.GPUNodeStatus) { s.Switch.TaintGeneration++; s.State = v1beta1.Applying }, holds: true},
		"an order of another switch":  {change: func(s *v1beta1.GPUNodeStatus) { s.Switch.TaintGeneration++; s.Node.PublishedTaints.SwitchID = "0" }, holds: true},
		"no taints are published":     {change: func(s *v1beta1.GPUNodeStatus) { s.Node.PublishedTaints = nil }, holds: true},
		"it goes back":                {change: func(s *v1beta1.GPUNodeStatus) { s.State = v1beta1.RollingBack }},
		"free devices are withheld":   {change: func(s *v1beta1.GPUNodeStatus) { s.Switch.Withhold = true }},
		"taints are dropped":          {change: func(s *v1beta1.GPUNodeStatus) { s.Node.PublishedTaints.Withheld = true }},
		"no GPU changes":              {change: func(s *v1beta1.GPUNodeStatus) { s.Switch.GPUs = nil }},
		"the API server has no slice": {change: func(s *v1beta1.GPUNodeStatus) { s.Node.GPUs[0].SliceHash = "0" }, differs: "the devices of " + gpuA + " in the API server are not those that the plugin publishes"},
	} {
		t.Run(name, func(t *testing.T) {
			w, node := switching(t, v1beta1.Applying)
			node.gone = []string{gpuA + "-mig-1g-10gb-6"}
			node.plugin(w)
			w.pod("node-a", "stray", gpuA, gpuA+"-mig-1g-10gb-6")
			n := w.gpuNode("node-a")
			n.Status.State = v1beta1.Verifying
			test.change(&n.Status)
			var facts state.Facts
			require.NoError(t, w.r.verify(t.Context(), n, &facts))
			assert.Equal(t, test.holds, len(facts.Holders) > 0)
			if test.differs == "" {
				assert.Empty(t, facts.Differs)
			} else {
				assert.Contains(t, facts.Differs, test.differs)
			}
		})
	}
}
