package picture

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/progress/progresstest"
)

// following are nodes that follow profiles: one whose cards are all in one mode, one
// whose cards are not, and one of which nothing is known.
func following() Input {
	in := Input{Now: progresstest.Now, Slices: append(append(cards("node-a", 2, h100Card), cards("node-b", 2, mi300x)...), cards("node-c", 1, l4Card)...)}
	b := progresstest.Follows("node-b", "mixture").Cards("CPX NPS4", cardOf(0)).Cards("SPX NPS4", cardOf(1))
	b.Status.Node.Cards[1].Pending = "when no share of the card is held: 4 replicas in place of 10"
	in.GPUNodes = []v1alpha1.GPUNode{b.GPUNode,
		progresstest.Follows("node-a", "dynamic").Cards("MIG on", cardOf(0), cardOf(1)).GPUNode,
		progresstest.Follows("node-z", "dynamic").Cards("MIG on", cardOf(0)).GPUNode, // publishes nothing, and nobody minds
	}
	in.Claims = []resourceapi.ResourceClaim{claim("team", "rank-0", "node-b", 0, xcpOf(0, "cpx", 0))}
	return in
}

// switching is a node that is drained, one whose driver is loaded anew, and one that
// another system serves.
func switching() Input {
	in := Input{Now: progresstest.Now, Slices: cards("node-a", 3, h100Card)}
	doing := "asks pods to leave " + cardOf(0) + ": pod team/train-0 (" + mig(0, "3g.40gb", 0) + ") is not evicted: budget team/train allows no eviction; " +
		"until 14:05:00 UTC at the latest, then it is given up and everything stays as it is"
	a := progresstest.Follows("node-a", "whole").Cards("MIG on", cardOf(0)).Cards("MIG off", cardOf(1), cardOf(2)).
		Switches(v1alpha1.Draining, "all-1g.10gb", doing, cardOf(0), cardOf(1)).Plan("removal of 3g.40gb x 2, partitions 1g.10gb x 7").
		Says(v1alpha1.ConditionOverruled, true, "LabelHolds", "the node's label tranche.dev/profile=all-1g.10gb holds; spec.profile whole of the GPUNode does not, until the label is taken off")
	a.Status.Node.Cards[2].Problem = "it does not answer"
	b := progresstest.Follows("node-b", "spx").Cards("SPX NPS1", cardOf(0)).
		Switches(v1alpha1.Applying, "cpx-nps4", "the node's plugin changes "+cardOf(0)+" (memory mode NPS4)", cardOf(0))
	c := progresstest.Follows("node-c", "").Cards("", cardOf(0)).Says(v1alpha1.ConditionReady, false, "Conflict", "other systems serve cards").
		Says(v1alpha1.ConditionConflict, true, "OtherOwner", "other systems serve cards of the node, so their modes and partitions are left alone: mig-manager")
	in.GPUNodes = []v1alpha1.GPUNode{a.GPUNode, b.GPUNode, c.GPUNode}
	in.Claims = []resourceapi.ResourceClaim{claim("team", "train-0", "node-a", 0, mig(0, "3g.40gb", 0))}
	repartitioning := resourceapi.DeviceTaint{Key: "tranche.dev/repartitioning", Value: "all-1g.10gb", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	pool := "node-a/" + cardOf(0)
	in.Rules = []resourceapi.DeviceTaintRule{{Spec: resourceapi.DeviceTaintRuleSpec{DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: &pool}, Taint: repartitioning}}}
	in.Rules[0].Name = "tranche-node-a-" + cardOf(0)
	return in
}

func switchFailed() Input {
	in := Input{Now: progresstest.Now, Slices: cards("node-b", 1, mi300x)}
	in.GPUNodes = []v1alpha1.GPUNode{progresstest.Follows("node-b", "spx").Cards("SPX NPS1", cardOf(0)).
		Fails("cpx-nps4", "HardwareFailed", "the driver was loaded anew and is in NPS1 still", true).GPUNode}
	return in
}

func TestProfileAsJSON(t *testing.T) {
	in := switching()
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, Build(in)))
	var m struct {
		Nodes []struct {
			Name    string
			Profile map[string]any
			Cards   []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &m))
	require.Len(t, m.Nodes, 3)
	far := m.Nodes[0].Profile
	for key, want := range map[string]any{
		"wanted": "all-1g.10gb", "applied": "whole", "source": "Label", "follows": false, "state": "Draining", "since": "2026-11-20T13:55:00Z",
		"deadline": "2026-11-20T14:05:00Z", "from": "whole", "to": "all-1g.10gb", "attempt": 1.0,
	} {
		assert.Equal(t, want, far[key], key)
	}
	card := m.Nodes[0].Cards[0]
	assert.Equal(t, "MIG on", card["hardwareMode"])
	assert.Equal(t, "removal of 3g.40gb x 2, partitions 1g.10gb x 7", card["change"])
	assert.NotContains(t, m.Nodes[0].Cards[2], "change")
	assert.Equal(t, "it does not answer", m.Nodes[0].Cards[2]["problem"])
	assert.NotNil(t, m.Nodes[1].Cards, "none, not null")
	assert.Equal(t, "other systems serve cards of the node, so their modes and partitions are left alone: mig-manager", m.Nodes[2].Profile["conflict"])

	in.OnlyNodes = []string{"node-b"}
	assert.Len(t, Build(in).Nodes, 1)

	// Nodes without cards have plugins, too, and nothing to show.
	in.GPUNodes[1].Status.Node.Cards = nil
	assert.Empty(t, Build(in).Nodes)
}

// A cluster without GPUNodes is drawn as it was before there were any.
func TestWithoutGPUNodes(t *testing.T) {
	in := following()
	in.GPUNodes = nil
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, Build(in)))
	for _, key := range []string{`"profile"`, `"hardwareMode"`, `"change"`} {
		assert.NotContains(t, b.String(), key)
	}
	assert.NotContains(t, draw(t, in, Options{Width: 80}), "profile")
}
