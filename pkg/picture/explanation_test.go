package picture

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Each line of what a pod holds and asks for names the claim, and how a device that is not well is.
func TestExplanation(t *testing.T) {
	e := &why.Explanation{
		Summary: "Pod a waits.",
		Holds: []why.Holding{
			{DeviceKind: cluster.DeviceKind{Label: "1g.10gb"}, Device: "gpu-0", Pool: "node-a", Claim: "first"},
			{DeviceKind: cluster.DeviceKind{Label: "3g.40gb"}, Device: "gpu-1", Pool: "node-a", Claim: "second", Problems: []v1beta1.GPUProblem{{Cause: "lost", Message: "it is lost"}}},
		},
		Asks: []demand.Ask{{Request: "gpu", Text: "2 x 1g.10gb", Claim: "third"}, {Request: "other", Text: "a whole GPU"}},
	}
	got := drawn(t, Screen{Width: 120}, func(p *Page) { DrawExplanation(p, e, false) })
	for _, want := range []string{
		"Pod a waits.", "gpu-0 of node-a (claim first)\n", "gpu-1 of node-a (claim second): it is lost\n", "2 x 1g.10gb, claim third\n", "a whole GPU\n",
	} {
		assert.Contains(t, got, want)
	}
}
