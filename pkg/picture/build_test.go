package picture

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// only is the one card of a model.
func only(t *testing.T, in Input) Card {
	t.Helper()
	m := Build(in)
	require.Len(t, m.Nodes, 1)
	require.Len(t, m.Nodes[0].Cards, 1)
	return m.Nodes[0].Cards[0]
}

func oneH100(claims ...resourceapi.ResourceClaim) Input {
	return Input{Slices: h100Card("node-a", 0), Claims: claims}
}

// counts is the fits by label.
func counts(all []Fit) map[string]int {
	out := map[string]int{}
	for _, f := range all {
		out[f.Label] = f.Count
	}
	return out
}

func states(c Card) []State {
	var out []State
	for _, s := range c.Bar {
		for range s.Size {
			out = append(out, s.State)
		}
	}
	return out
}

func TestAnIdleCardOffersEveryProfile(t *testing.T) {
	c := only(t, oneH100())
	assert.Equal(t, map[string]int{
		wholeCard: 1, "7g.80gb": 1, "4g.40gb": 1, "3g.40gb": 2, "2g.20gb": 3, "1g.20gb": 4,
		"1g.10gb": 7, "1g.10gb+me": 1, // one OFA engine on the card
	}, counts(c.Fits))
	assert.Equal(t, wholeCard, c.Fits[0].Label, "the largest comes first")
	assert.Equal(t, 8, c.Positions)
	assert.Equal(t, h100, c.ProductName)
	assert.Equal(t, "0000:0f:00.0", c.PCIBusID)
	assert.EqualValues(t, h100Mem, c.MemoryBytes)
	assert.Empty(t, c.Held)
}

func TestWhatIsHeldIsNotOffered(t *testing.T) {
	c := only(t, oneH100(claim("default", "p", "node-a", 0, mig(0, "3g.40gb", 4))))
	assert.Equal(t, map[string]int{
		"4g.40gb": 1, "3g.40gb": 1, "2g.20gb": 2, "1g.20gb": 2, "1g.10gb": 4, "1g.10gb+me": 1,
	}, counts(c.Fits))
	assert.Equal(t, []State{Free, Free, Free, Free, Taken, Taken, Taken, Taken}, states(c))
	assert.Equal(t, []int{4, 5, 6, 7}, c.Held[0].Positions)
	assert.Equal(t, []Holder{{Namespace: "default", Claim: "p-gpu-x7k2p", Pods: []string{"p"}}}, c.Held[0].Holders)
}

func TestTheEighthSliceBesideSevenSmallOnesIsLeftOver(t *testing.T) {
	in := oneH100()
	for start := range 7 {
		in.Claims = append(in.Claims, claim("default", string(rune('a'+start)), "node-a", 0, mig(0, "1g.10gb", start)))
	}
	c := only(t, in)
	assert.Empty(t, c.Fits)
	assert.Equal(t, []State{Taken, Taken, Taken, Taken, Taken, Taken, Taken, Leftover}, states(c))
}

func TestAWholeCardTakesEveryPosition(t *testing.T) {
	c := only(t, oneH100(claim("default", "p", "node-a", 0, cardOf(0))))
	assert.Equal(t, []Segment{{Start: 0, Size: 8, State: Taken, Label: wholeCard}}, c.Bar)
	assert.Empty(t, c.Fits)
}

func TestAdminAccessTakesNothing(t *testing.T) {
	admin := claim("monitoring", "dcgm", "node-a", 0, cardOf(0))
	yes := true
	result(&admin).AdminAccess = &yes
	c := only(t, oneH100(admin))
	assert.Equal(t, 7, counts(c.Fits)["1g.10gb"])
	assert.NotContains(t, states(c), Taken)
	assert.True(t, c.Held[0].Holders[0].Admin)
}

func TestTaintedDevicesAreNotOffered(t *testing.T) {
	in := oneH100()
	all := func(string) bool { return true }
	taint(in.Slices, all, resourceapi.DeviceTaint{Key: "k", Value: "v", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	c := only(t, in)
	assert.Empty(t, c.Fits)
	assert.Equal(t, Blocked, c.Bar[0].State)
	assert.Equal(t, []Taint{{Key: "k", Value: "v", Effect: "NoSchedule", Devices: 26, Of: 26}}, c.Taints)
}

func TestATaintWithoutEffectOnlyInforms(t *testing.T) {
	in := oneH100()
	all := func(string) bool { return true }
	taint(in.Slices, all, resourceapi.DeviceTaint{Key: "k", Effect: resourceapi.DeviceTaintEffectNone})
	c := only(t, in)
	assert.Equal(t, 7, counts(c.Fits)["1g.10gb"])
	assert.Len(t, c.Taints, 1)
}

func TestForeignDriversAreIgnored(t *testing.T) {
	foreignClaim := claim("default", "nic", "node-a", 0, cardOf(0))
	result(&foreignClaim).Driver = "nic.example.com"
	in := oneH100(foreignClaim)
	foreignSlice := h100Card("node-z", 3)
	for i := range foreignSlice {
		foreignSlice[i].Spec.Driver = "gpu.nvidia.com"
	}
	in.Slices = append(in.Slices, foreignSlice...)
	c := only(t, in)
	assert.Empty(t, c.Held)
	assert.Empty(t, Build(in).Lost)
}

func TestADeviceNoLongerPublishedIsShownAsSuch(t *testing.T) {
	m := Build(unpublished())
	held := m.Nodes[0].Cards[0].Held
	require.Len(t, held, 2)
	assert.True(t, held[0].Unpublished)
	assert.Equal(t, "mig-1g-5gb", held[0].Label)
	assert.False(t, held[1].Unpublished)
	require.Len(t, m.Lost, 1)
	assert.Equal(t, "node-z", m.Lost[0].Pool)
}

func TestOnlyTheNewestGenerationCounts(t *testing.T) {
	in := oneH100()
	newer := h100Card("node-a", 0)
	for i := range newer {
		newer[i].Name += "-new"
		newer[i].Spec.Pool.Generation = 2
	}
	in.Slices = append(in.Slices, newer...)
	assert.Equal(t, 7, counts(only(t, in).Fits)["1g.10gb"], "not counted twice")

	in.Slices = append(h100Card("node-a", 0), newer[0])
	c := only(t, in)
	assert.Equal(t, "1 of 2 slices are there", c.Incomplete)
	assert.Empty(t, c.Fits, "the scheduler would not use it")
	assert.Equal(t, Unknown, c.Bar[0].State)
}

func TestADeviceOfAnIncompletePoolIsNotCalledGone(t *testing.T) {
	in := incomplete()
	in.Claims = []resourceapi.ResourceClaim{claim("default", "p", "node-a", 0, mig(0, "1g.10gb", 0))}
	assert.False(t, Build(in).Nodes[0].Cards[0].Held[0].Unpublished)
}

func TestWhatMayNotBeSeenIsNotCalledFree(t *testing.T) {
	in := oneH100()
	in.Partial = true
	c := only(t, in)
	assert.Empty(t, c.Fits)
	assert.NotContains(t, states(c), Free)
}

func TestOtherNamespacesHoldWithoutAName(t *testing.T) {
	in := oneH100(claim("secret", "p", "node-a", 0, mig(0, "3g.40gb", 0)))
	in.Namespace = "team-a"
	c := only(t, in)
	assert.Equal(t, []Holder{{Hidden: true}}, c.Held[0].Holders)
	assert.Equal(t, Taken, c.Bar[0].State)
}

func TestOnlyTheNodesAskedFor(t *testing.T) {
	in := twoNodes()
	in.OnlyNodes = []string{"node-b"}
	in.Claims = append(in.Claims, claim("default", "lost", "node-z", 5, cardOf(5)))
	m := Build(in)
	require.Len(t, m.Nodes, 1)
	assert.Equal(t, "node-b", m.Nodes[0].Name)
	assert.Equal(t, "NotReady, cordoned", m.Nodes[0].State)
	assert.Empty(t, m.Lost)
}

func TestACardThatCannotBeCutHasOnePosition(t *testing.T) {
	c := only(t, Input{Slices: l4Card("node-a", 0)})
	assert.Equal(t, []Segment{{Start: 0, Size: 1, State: Free}}, c.Bar)
	assert.Equal(t, map[string]int{wholeCard: 1}, counts(c.Fits))
}

func TestEqualPartsOfMemoryAreDrawnByTheirIndex(t *testing.T) {
	in := unknownType()
	for i, s := range in.Slices {
		for j, d := range s.Spec.Devices {
			if d.Name == cardOf(0)+"-cpx-2" { // against the order of publishing
				seven := int64(7)
				in.Slices[i].Spec.Devices[j].Attributes["gpu.tranche.dev/partitionIndex"] = resourceapi.DeviceAttribute{IntValue: &seven}
			}
		}
	}
	c := Build(in).Nodes[0].Cards[0]
	assert.Equal(t, 8, c.Positions)
	assert.Equal(t, []int{7}, c.Held[0].Positions)
}

// Six parts of an amount of memory that six does not divide.
func TestPartsThatLeaveAFewBytesAreEqual(t *testing.T) {
	const total = 131056 << 20
	require.NotZero(t, total%6)
	in := Input{Slices: instinct("node-a", 0, "AMD Instinct MI300A", xcp.Facts{XCCs: 6, Memory: total, Modes: []xcp.Mode{xcp.SPX, xcp.TPX, xcp.CPX}})}
	in.Claims = []resourceapi.ResourceClaim{claim("default", "p", "node-a", 0, xcpOf(0, "tpx", 1))}
	c := only(t, in)
	assert.Equal(t, 6, c.Positions)
	assert.Equal(t, []int{2, 3}, c.Held[0].Positions)
	assert.Equal(t, map[string]int{"tpx": 2}, counts(c.Fits))
}

func TestACardInAModeOffersNoOther(t *testing.T) {
	in := Input{Slices: mi300x("node-a", 0)}
	c := only(t, in)
	assert.Nil(t, c.Mode, "nobody holds it in any")
	assert.Equal(t, "NPS1", c.MemoryMode)
	assert.Equal(t, map[string]int{wholeCard: 1, "dpx": 2, "qpx": 4, "cpx": 8}, counts(c.Fits))

	in.Claims = []resourceapi.ResourceClaim{claim("default", "p", "node-a", 0, xcpOf(0, "qpx", 2))}
	c = only(t, in)
	assert.Equal(t, &Mode{Name: "QPX", Held: 1, Of: 4}, c.Mode)
	assert.Equal(t, map[string]int{"qpx": 3}, counts(c.Fits))
	assert.Equal(t, []int{4, 5}, c.Held[0].Positions)

	in.Claims = []resourceapi.ResourceClaim{claim("default", "p", "node-a", 0, cardOf(0))}
	c = only(t, in)
	assert.Equal(t, &Mode{Name: "SPX", Held: 1, Of: 1}, c.Mode)
	assert.Equal(t, wholeCard, c.Held[0].Label)
	assert.Empty(t, c.Fits)

	// Who only looks keeps a card in no mode.
	yes := true
	result(&in.Claims[0]).AdminAccess = &yes
	assert.Nil(t, only(t, in).Mode)
}

// Under NPS4 an MI300X cannot be had whole.
func TestACardThatIsNeverWhole(t *testing.T) {
	c := only(t, Input{Slices: instinct("node-a", 0, mi300xName, xcp.Facts{
		XCCs: 8, Memory: 196592 << 20, MemoryMode: xcp.NPS4, Modes: []xcp.Mode{xcp.QPX, xcp.CPX},
	})})
	assert.Equal(t, 8, c.Positions)
	assert.EqualValues(t, 196592<<20, c.MemoryBytes, "of the card, not of its largest piece")
	assert.Equal(t, map[string]int{"qpx": 4, "cpx": 8}, counts(c.Fits))
	assert.Equal(t, "NPS4", c.MemoryMode)
}

func TestUnevenMemoryFallsBackToOnePosition(t *testing.T) {
	devices := []*device{{consumes: gpu.Counters{"memory": 30}}, {consumes: gpu.Counters{"memory": 50}}}
	assert.Equal(t, 1, positions(gpu.Counters{"memory": 100}, devices))
	for _, d := range devices {
		assert.Equal(t, []int{0}, d.positions)
	}
}

func TestEqualObjectsInAnyOrderGiveAnEqualModel(t *testing.T) {
	for name, scene := range scenes {
		want := Build(scene())
		for range 5 {
			in := scene()
			rand.Shuffle(len(in.Slices), func(i, j int) { in.Slices[i], in.Slices[j] = in.Slices[j], in.Slices[i] })
			rand.Shuffle(len(in.Claims), func(i, j int) { in.Claims[i], in.Claims[j] = in.Claims[j], in.Claims[i] })
			assert.Equal(t, asJSON(t, want), asJSON(t, Build(in)), name)
		}
	}
}

// Objects that a broken or a later driver published must not make us fall over.
func TestOddObjectsDoNotPanic(t *testing.T) {
	odd := onePool("node-a", "x", gpu.Counters{"memory-slice-x": 1, "memory-slice-3": 1},
		resourceapi.Device{Name: "bare"},
		published("x", "over", "", "", 0, gpu.Counters{"memory-slice-9": 4, "nonsense": 1}))
	odd[0].Spec.Pool.Name, odd[1].Spec.Pool.Name = "elsewhere/x", "elsewhere/x"
	in := Input{Slices: odd, Claims: []resourceapi.ResourceClaim{claim("a", "b", "c", 0, "d")}}
	for width := range 120 {
		assert.NotPanics(t, func() { draw(t, in, Options{Width: width}) })
	}
}

func TestNodeState(t *testing.T) {
	assert.Empty(t, nodeState(node("a", corev1.ConditionTrue, false)))
	assert.Equal(t, "NotReady", nodeState(node("a", corev1.ConditionUnknown, false)))
}

func asJSON(t *testing.T, m *Model) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, m))
	return b.String()
}

func TestJSON(t *testing.T) {
	assert.JSONEq(t, `{"nodes": []}`, asJSON(t, Build(Input{})))

	in := oneH100(claim("default", "p", "node-a", 0, mig(0, "4g.40gb", 0)))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(asJSON(t, Build(in))), &got))
	node := got["nodes"].([]any)[0].(map[string]any)
	card := node["cards"].([]any)[0].(map[string]any)
	held := card["held"].([]any)[0].(map[string]any)
	assert.Equal(t, "node-a", node["name"])
	assert.Equal(t, "580.159.04", node["driverVersion"])
	assert.Equal(t, "gpu-0000-0f-00-0", card["name"])
	assert.Equal(t, "gpu-0000-0f-00-0-mig-4g-40gb-0", held["device"])
	assert.Equal(t, []any{"p"}, held["holders"].([]any)[0].(map[string]any)["pods"])
	assert.Equal(t, map[string]any{"label": "3g.40gb", "count": 1.0}, card["fits"].([]any)[0])
}

func TestModeInJSON(t *testing.T) {
	in := Input{Slices: mi300x("node-a", 0), Claims: []resourceapi.ResourceClaim{claim("default", "p", "node-a", 0, xcpOf(0, "cpx", 0))}}
	out := asJSON(t, Build(in))
	var got struct {
		Nodes []struct {
			Cards []struct {
				Mode       map[string]any
				MemoryMode string
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, map[string]any{"name": "CPX", "held": 1.0, "of": 8.0}, got.Nodes[0].Cards[0].Mode)
	assert.Equal(t, "NPS1", got.Nodes[0].Cards[0].MemoryMode)
	assert.NotContains(t, asJSON(t, Build(oneH100())), `ode"`, "cards without modes say nothing of them")
}

func TestRulesTaintWhatTheySelect(t *testing.T) {
	pool := gpu.PoolName("node-a")
	fan := resourceapi.DeviceTaint{Key: "example.com/maintenance", Value: "fan", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	rule := func(name string, s *resourceapi.DeviceTaintSelector) resourceapi.DeviceTaintRule {
		r := resourceapi.DeviceTaintRule{Spec: resourceapi.DeviceTaintRuleSpec{DeviceSelector: s, Taint: fan}}
		r.Name = name
		return r
	}
	text := func(s string) *string { return &s }
	in := oneH100()
	in.Rules = []resourceapi.DeviceTaintRule{
		rule("nothing", nil), // without a selector a rule selects nothing
		rule("elsewhere", &resourceapi.DeviceTaintSelector{Driver: text("other.example.com")}),
	}
	assert.Empty(t, only(t, in).Taints)

	in.Rules = append(in.Rules, rule("one", &resourceapi.DeviceTaintSelector{Pool: &pool, Device: text(mig(0, "3g.40gb", 4))}))
	c := only(t, in)
	require.Len(t, c.Taints, 1)
	assert.Equal(t, Taint{Key: fan.Key, Value: fan.Value, Effect: "NoSchedule", Devices: 1, Of: c.Taints[0].Of, Rules: []string{"one"}}, c.Taints[0])
	assert.Equal(t, 1, counts(c.Fits)["3g.40gb"])
	assert.Empty(t, in.Slices[1].Spec.Devices[0].Taints, "what was given stays as it was")

	// The driver's own taint and two rules with the same one: counted once.
	taint(in.Slices, func(string) bool { return true }, fan)
	in.Rules = append(in.Rules, rule("all", &resourceapi.DeviceTaintSelector{}))
	c = only(t, in)
	require.Len(t, c.Taints, 1)
	assert.Equal(t, c.Taints[0].Of, c.Taints[0].Devices)
	assert.Equal(t, []string{"all", "one"}, c.Taints[0].Rules)
	assert.Empty(t, c.Fits)

	var out bytes.Buffer
	require.NoError(t, Draw(&out, Build(in), Options{Width: 140}))
	assert.Contains(t, out.String(), "(example.com/maintenance:NoSchedule by DeviceTaintRule all, one)")
}
