package cluster_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/scenes"
)

// only is the one GPU of a model.
func only(t *testing.T, in scenes.Scene) cluster.GPU {
	t.Helper()
	m := in.Summary()
	require.Len(t, m.Nodes, 1)
	require.Len(t, m.Nodes[0].GPUs, 1)
	return m.Nodes[0].GPUs[0]
}

func oneH100(claims ...resourceapi.ResourceClaim) scenes.Scene {
	return scenes.Scene{Objects: cluster.Objects{Slices: scenes.H100("node-a", 0), Claims: claims}}
}

// counts is the fits by label.
func counts(all []cluster.Fit) map[string]int {
	out := map[string]int{}
	for _, f := range all {
		out[f.Label] = f.Count
	}
	return out
}

func states(g cluster.GPU) []cluster.State {
	var out []cluster.State
	for _, s := range g.Bar {
		for range s.Size {
			out = append(out, s.State)
		}
	}
	return out
}

func TestAnIdleGPUOffersEveryProfile(t *testing.T) {
	g := only(t, oneH100())
	assert.Equal(t, map[string]int{
		cluster.WholeGPU: 1, "7g.80gb": 1, "4g.40gb": 1, "3g.40gb": 2, "2g.20gb": 3, "1g.20gb": 4,
		"1g.10gb": 7, "1g.10gb+me": 1, // one OFA engine on the GPU
	}, counts(g.Fits))
	assert.Equal(t, cluster.WholeGPU, g.Fits[0].Label, "the largest comes first")
	assert.Equal(t, 8, g.Positions)
	assert.Equal(t, scenes.H100Name, g.ProductName)
	assert.Equal(t, "0000:0f:00.0", g.PCIBusID)
	assert.Equal(t, "nvidia", g.Vendor)
	assert.EqualValues(t, scenes.H100Memory, g.MemoryBytes)
	assert.Empty(t, g.Held)
}

func TestWhatIsHeldIsNotOffered(t *testing.T) {
	g := only(t, oneH100(scenes.Claim("default", "p", "node-a", 0, scenes.MIG(0, "3g.40gb", 4))))
	assert.Equal(t, map[string]int{
		"4g.40gb": 1, "3g.40gb": 1, "2g.20gb": 2, "1g.20gb": 2, "1g.10gb": 4, "1g.10gb+me": 1,
	}, counts(g.Fits))
	assert.Equal(t, []cluster.State{cluster.Free, cluster.Free, cluster.Free, cluster.Free, cluster.Taken, cluster.Taken, cluster.Taken, cluster.Taken}, states(g))
	assert.Equal(t, []int{4, 5, 6, 7}, g.Held[0].Positions)
	assert.Equal(t, []cluster.Holder{{Namespace: "default", Claim: "p-gpu-x7k2p", Pods: []string{"p"}}}, g.Held[0].Holders)
}

func TestTheEighthSliceBesideSevenSmallOnesIsLeftOver(t *testing.T) {
	in := oneH100()
	for start := range 7 {
		in.Claims = append(in.Claims, scenes.Claim("default", string(rune('a'+start)), "node-a", 0, scenes.MIG(0, "1g.10gb", start)))
	}
	g := only(t, in)
	assert.Empty(t, g.Fits)
	assert.Equal(t, []cluster.State{cluster.Taken, cluster.Taken, cluster.Taken, cluster.Taken, cluster.Taken, cluster.Taken, cluster.Taken, cluster.Leftover}, states(g))
}

func TestAWholeGPUTakesEveryPosition(t *testing.T) {
	g := only(t, oneH100(scenes.Claim("default", "p", "node-a", 0, scenes.GPUOf(0))))
	assert.Equal(t, []cluster.Segment{{Start: 0, Size: 8, State: cluster.Taken, Label: cluster.WholeGPU}}, g.Bar)
	assert.Empty(t, g.Fits)
}

func TestAMonitorTakesNothing(t *testing.T) {
	admin := scenes.Claim("monitoring", "dcgm", "node-a", 0, scenes.GPUOf(0)+"-monitor")
	scenes.Result(&admin).AdminAccess = new(true)
	in := oneH100(admin)
	g := only(t, in)
	assert.Empty(t, g.Taints)
	assert.Equal(t, 7, counts(g.Fits)["1g.10gb"])
	assert.NotContains(t, states(g), cluster.Taken)
	assert.True(t, g.Held[0].Holders[0].Admin)

	for i := range in.Slices {
		in.Slices[i].Spec.Devices = slices.DeleteFunc(in.Slices[i].Spec.Devices, func(d resourceapi.Device) bool { return gpu.IsMonitor(d.Name) })
	}
	assert.Empty(t, only(t, in).Held, "during a switch the device is not published")
}

// What is left of a shared device is free, unless a taint keeps claims away or holders may be missing.
func TestRestOfAShare(t *testing.T) {
	for rest, change := range map[cluster.State]func(*scenes.Scene){
		cluster.Free:    func(*scenes.Scene) {},
		cluster.Unknown: func(s *scenes.Scene) { s.Partial = true },
		cluster.Blocked: func(s *scenes.Scene) {
			scenes.Taint(s.Slices, func(string) bool { return true }, resourceapi.DeviceTaint{Key: "maintenance", Effect: resourceapi.DeviceTaintEffectNoSchedule})
		},
	} {
		in := scenes.Shared()
		change(&in)
		gpus := in.Summary().Nodes[0].GPUs
		want := cluster.Segment{Size: 1, State: cluster.Taken, Label: "fraction share", Left: 0.5, Rest: rest}
		assert.Equal(t, []cluster.Segment{want}, gpus[1].Bar)
		assert.InDelta(t, 0.5, want.Positions(rest), 0.001)
		assert.InDelta(t, 0.5, want.Positions(cluster.Taken), 0.001)
		last := gpus[2].Bar[len(gpus[2].Bar)-1]
		assert.InDelta(t, 40.0/96, last.Positions(cluster.Taken)/float64(last.Size), 0.001)
	}
}

func TestTaintedDevicesAreNotOffered(t *testing.T) {
	in := oneH100()
	all := func(string) bool { return true }
	var want []cluster.Taint
	for _, of := range [][3]string{{"k", "w", "NoSchedule"}, {"k", "v", "NoSchedule"}, {"k", "v", "NoExecute"}, {"j", "v", "NoSchedule"}} {
		taint := resourceapi.DeviceTaint{Key: of[0], Value: of[1], Effect: resourceapi.DeviceTaintEffect(of[2])}
		scenes.Taint(in.Slices, all, taint)
		want = append([]cluster.Taint{{Key: taint.Key, Value: taint.Value, Effect: taint.Effect, Devices: 26, Of: 26}}, want...)
	}
	g := only(t, in)
	assert.Empty(t, g.Fits)
	assert.Equal(t, cluster.Blocked, g.Bar[0].State)
	assert.Equal(t, want, g.Taints)
}

func TestATaintWithoutEffectOnlyInforms(t *testing.T) {
	in := oneH100()
	all := func(string) bool { return true }
	scenes.Taint(in.Slices, all, resourceapi.DeviceTaint{Key: "k", Effect: resourceapi.DeviceTaintEffectNone})
	g := only(t, in)
	assert.Equal(t, 7, counts(g.Fits)["1g.10gb"])
	assert.Len(t, g.Taints, 1)
}

func TestForeignDriversAreIgnored(t *testing.T) {
	foreignClaim := scenes.Claim("default", "nic", "node-a", 0, scenes.GPUOf(0))
	scenes.Result(&foreignClaim).Driver = "nic.example.com"
	in := oneH100(foreignClaim)
	foreignSlice := scenes.H100("node-z", 3)
	for i := range foreignSlice {
		foreignSlice[i].Spec.Driver = "gpu.nvidia.com"
	}
	in.Slices = append(in.Slices, foreignSlice...)
	g := only(t, in)
	assert.Empty(t, g.Held)
	assert.Empty(t, in.Summary().Lost)
}

func TestADeviceNoLongerPublishedIsShownAsSuch(t *testing.T) {
	m := scenes.Unpublished().Summary()
	held := m.Nodes[0].GPUs[0].Held
	require.Len(t, held, 2)
	assert.True(t, held[0].Unpublished)
	assert.Equal(t, "mig-1g-5gb", held[0].Label)
	assert.False(t, held[1].Unpublished)
	require.Len(t, m.Lost, 1)
	assert.Equal(t, "node-z", m.Lost[0].Pool)
}

func TestOnlyTheNewestGenerationCounts(t *testing.T) {
	in := oneH100()
	newer := scenes.H100("node-a", 0)
	for i := range newer {
		newer[i].Name += "-new"
		newer[i].Spec.Pool.Generation = 2
	}
	in.Slices = append(in.Slices, newer...)
	assert.Equal(t, 7, counts(only(t, in).Fits)["1g.10gb"], "not counted twice")

	in.Slices = append(scenes.H100("node-a", 0), newer[0])
	g := only(t, in)
	assert.EqualValues(t, 1, g.MissingSlices)
	assert.Empty(t, g.Fits, "the scheduler would not use it")
	assert.Equal(t, cluster.Unknown, g.Bar[0].State)
}

func TestADeviceOfAnIncompletePoolIsNotCalledGone(t *testing.T) {
	in := scenes.Incomplete()
	in.Claims = []resourceapi.ResourceClaim{scenes.Claim("default", "p", "node-a", 0, scenes.MIG(0, "1g.10gb", 0))}
	assert.False(t, in.Summary().Nodes[0].GPUs[0].Held[0].Unpublished)
}

func TestWhatMayNotBeSeenIsNotCalledFree(t *testing.T) {
	in := oneH100()
	in.Partial = true
	g := only(t, in)
	assert.Empty(t, g.Fits)
	assert.NotContains(t, states(g), cluster.Free)
}

func TestOtherNamespacesHoldWithoutAName(t *testing.T) {
	in := oneH100(scenes.Claim("secret", "p", "node-a", 0, scenes.MIG(0, "3g.40gb", 0)))
	in.View.Namespace = "team-a"
	g := only(t, in)
	assert.Equal(t, []cluster.Holder{{Hidden: true}}, g.Held[0].Holders)
	assert.Equal(t, cluster.Taken, g.Bar[0].State)
}

func TestOnlyTheNodesAskedFor(t *testing.T) {
	in := scenes.TwoNodes()
	in.View.Nodes = []string{"node-b"}
	in.GPUNodes = append(in.GPUNodes, gpunodes.WithProfile("node-z", "dynamic").GPUs(gpunodes.MIGOn, scenes.GPUOf(5)).GPUNode)
	in.Claims = append(in.Claims, scenes.Claim("default", "lost", "node-z", 5, scenes.GPUOf(5)))
	m := in.Summary()
	require.Len(t, m.Nodes, 1)
	assert.Equal(t, "node-b", m.Nodes[0].Name)
	assert.Equal(t, "NotReady, cordoned", m.Nodes[0].State())
	assert.Empty(t, m.Lost)
}

// A node whose plugin is gone is shown, unless it is not known what the nodes publish.
func TestANodeThatPublishesNone(t *testing.T) {
	in := scenes.TwoNodes()
	in.GPUNodes = append(in.GPUNodes, gpunodes.WithProfile("node-z", "dynamic").GPUs(gpunodes.MIGOn, scenes.GPUOf(0)).GPUNode)
	in.GPUNodes = append(in.GPUNodes, gpunodes.WithProfile("without-gpus", "dynamic").Says(names.ConditionOverridden, true, "LabelHolds", "the node's label holds").GPUNode)
	last := func() cluster.Node { nodes := in.Summary().Nodes; return nodes[len(nodes)-1] }
	require.Equal(t, "node-z", last().Name)
	assert.Equal(t, "It publishes none of its GPUs: see whether the kubelet plugin runs on the node.", last().Profile.Sentences(in.Now)[0].Text)
	in.Unread = []text.Unread{{Resource: "resourceslices.resource.k8s.io"}}
	assert.Equal(t, "node-b", last().Name)
}

func TestAGPUThatCannotBeCutHasOnePosition(t *testing.T) {
	in := scenes.Scene{Objects: cluster.Objects{Slices: scenes.L4("node-a", 0)}}
	in.Slices[1].Spec.Devices[0].Attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: new("GPU-l4")}
	g := only(t, in)
	assert.Equal(t, []cluster.Segment{{Start: 0, Size: 1, State: cluster.Free}}, g.Bar)
	assert.Equal(t, "GPU-l4", g.UUID)
	assert.Equal(t, map[string]int{cluster.WholeGPU: 1}, counts(g.Fits))
}

func TestEqualPartsOfMemoryAreDrawnByTheirIndex(t *testing.T) {
	in := scenes.UnknownType()
	for i, s := range in.Slices {
		for j, d := range s.Spec.Devices {
			if d.Name == scenes.GPUOf(0)+"-cpx-2" { // against the order of publishing
				seven := int64(7)
				in.Slices[i].Spec.Devices[j].Attributes["gpu.tranche.dev/partitionIndex"] = resourceapi.DeviceAttribute{IntValue: &seven}
			}
		}
	}
	g := in.Summary().Nodes[0].GPUs[0]
	assert.Equal(t, 8, g.Positions)
	assert.Equal(t, []int{7}, g.Held[0].Positions)
}

// Six parts of an amount of memory that six does not divide.
func TestPartsThatLeaveAFewBytesAreEqual(t *testing.T) {
	const total = 131056 << 20
	require.NotZero(t, total%6)
	in := scenes.Scene{Objects: cluster.Objects{Slices: scenes.Instinct("node-a", 0, "AMD Instinct MI300A", xcp.Facts{XCCs: 6, Memory: total, Modes: []xcp.Mode{xcp.SPX, xcp.TPX, xcp.CPX}})}}
	in.Claims = []resourceapi.ResourceClaim{scenes.Claim("default", "p", "node-a", 0, scenes.XCP(0, "tpx", 1))}
	g := only(t, in)
	assert.Equal(t, 6, g.Positions)
	assert.Equal(t, []int{2, 3}, g.Held[0].Positions)
	assert.Equal(t, map[string]int{"tpx": 2}, counts(g.Fits))
}

func TestAGPUInAModeOffersNoOther(t *testing.T) {
	in := scenes.Scene{Objects: cluster.Objects{Slices: scenes.MI300X("node-a", 0)}}
	g := only(t, in)
	assert.Nil(t, g.Mode, "nobody holds it in any")
	assert.Equal(t, "NPS1", g.MemoryMode)
	assert.Equal(t, map[string]int{cluster.WholeGPU: 1, "dpx": 2, "qpx": 4, "cpx": 8}, counts(g.Fits))

	in.Claims = []resourceapi.ResourceClaim{scenes.Claim("default", "p", "node-a", 0, scenes.XCP(0, "qpx", 2))}
	g = only(t, in)
	assert.Equal(t, &cluster.Mode{Name: "QPX", Held: 1, Of: 4}, g.Mode)
	assert.Equal(t, map[string]int{"qpx": 3}, counts(g.Fits))
	assert.Equal(t, []int{4, 5}, g.Held[0].Positions)

	in.Claims = []resourceapi.ResourceClaim{scenes.Claim("default", "p", "node-a", 0, scenes.GPUOf(0))}
	g = only(t, in)
	assert.Equal(t, &cluster.Mode{Name: "SPX", Held: 1, Of: 1}, g.Mode)
	assert.Equal(t, cluster.WholeGPU, g.Held[0].Label)
	assert.Empty(t, g.Fits)

	// Who only looks keeps a GPU in no mode.
	yes := true
	scenes.Result(&in.Claims[0]).AdminAccess = &yes
	assert.Nil(t, only(t, in).Mode)
}

// Under NPS4 an MI300X cannot be had whole.
func TestAGPUThatIsNeverWhole(t *testing.T) {
	g := only(t, scenes.Scene{Objects: cluster.Objects{Slices: scenes.Instinct("node-a", 0, scenes.MI300XName, xcp.Facts{
		XCCs: 8, Memory: 196592 << 20, MemoryMode: xcp.NPS4, Modes: []xcp.Mode{xcp.QPX, xcp.CPX},
	})}})
	assert.Equal(t, 8, g.Positions)
	assert.EqualValues(t, 196592<<20, g.MemoryBytes, "of the GPU, not of its largest piece")
	assert.Equal(t, map[string]int{"qpx": 4, "cpx": 8}, counts(g.Fits))
	assert.Equal(t, "NPS4", g.MemoryMode)
	assert.Equal(t, "GPU-0", g.UUID)
}

func TestEqualObjectsInAnyOrderGiveAnEqualModel(t *testing.T) {
	for name, scene := range scenes.All {
		want := scene().Summary()
		for range 5 {
			in := scene()
			rand.Shuffle(len(in.Slices), func(i, j int) { in.Slices[i], in.Slices[j] = in.Slices[j], in.Slices[i] })
			for i := range in.Slices {
				devices := in.Slices[i].Spec.Devices
				rand.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
			}
			rand.Shuffle(len(in.Claims), func(i, j int) { in.Claims[i], in.Claims[j] = in.Claims[j], in.Claims[i] })
			assert.Equal(t, asJSON(t, want), asJSON(t, in.Summary()), name)
		}
	}
}

func asJSON(t *testing.T, s *cluster.Summary) string {
	t.Helper()
	data, err := json.Marshal(s)
	require.NoError(t, err)
	return string(data)
}

func TestJSON(t *testing.T) {
	assert.JSONEq(t, `{"nodes": []}`, asJSON(t, scenes.Scene{}.Summary()))

	in := oneH100(scenes.Claim("default", "p", "node-a", 0, scenes.MIG(0, "4g.40gb", 0)))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(asJSON(t, in.Summary())), &got))
	node := got["nodes"].([]any)[0].(map[string]any)
	g := node["gpus"].([]any)[0].(map[string]any)
	held := g["devices"].([]any)[0].(map[string]any)
	assert.Equal(t, "node-a", node["name"])
	assert.Equal(t, "580.159.4", g["driverVersion"])
	assert.Equal(t, "80Gi", g["memory"])
	assert.Equal(t, "gpu-0000-0f-00-0", g["name"])
	assert.Equal(t, "gpu-0000-0f-00-0-mig-4g-40gb-0", held["name"])
	assert.Equal(t, []any{"p"}, held["holders"].([]any)[0].(map[string]any)["podNames"])
	assert.Equal(t, map[string]any{"type": "mig", "profile": "3g.40gb", "count": 1.0}, g["freeDevices"].([]any)[0])
}

func TestRulesTaintWhatTheySelect(t *testing.T) {
	pool := names.PoolName("node-a")
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

	in.Rules = append(in.Rules, rule("one", &resourceapi.DeviceTaintSelector{Pool: &pool, Device: text(scenes.MIG(0, "3g.40gb", 4))}))
	g := only(t, in)
	require.Len(t, g.Taints, 1)
	assert.Equal(t, cluster.Taint{Key: fan.Key, Value: fan.Value, Effect: "NoSchedule", Devices: 1, Of: g.Taints[0].Of, Rules: []string{"one"}}, g.Taints[0])
	assert.Equal(t, 1, counts(g.Fits)["3g.40gb"])
	assert.Empty(t, in.Slices[1].Spec.Devices[0].Taints, "what was given stays as it was")

	// The driver's own taint and two rules with the same one: counted once.
	scenes.Taint(in.Slices, func(string) bool { return true }, fan)
	in.Rules = append(in.Rules, rule("all", &resourceapi.DeviceTaintSelector{}))
	g = only(t, in)
	require.Len(t, g.Taints, 1)
	assert.Equal(t, g.Taints[0].Of, g.Taints[0].Devices)
	assert.Equal(t, []string{"all", "one"}, g.Taints[0].Rules)
	for _, other := range []resourceapi.DeviceTaint{{Key: fan.Key, Value: fan.Value, Effect: "NoExecute"}, {Key: fan.Key, Effect: fan.Effect}, {Key: "k", Value: fan.Value, Effect: fan.Effect}} {
		in.Rules = append(in.Rules, rule("other", &resourceapi.DeviceTaintSelector{}))
		in.Rules[len(in.Rules)-1].Spec.Taint = other
	}
	device := &cluster.Device{Device: &resourceapi.Device{Name: scenes.MIG(0, "3g.40gb", 4)}, Pool: &cluster.Pool{Name: pool}}
	assert.Equal(t, []string{"all", "one"}, cluster.RulesBehind(in.Rules, device, fan))
	assert.Empty(t, g.Fits)
}

// A node can publish a pool whose name is not its own.
func TestNodeWithTwoPools(t *testing.T) {
	other := scenes.H100("z", 1)
	for i := range other {
		other[i].Spec.Pool.Name, other[i].Spec.Pool.ResourceSliceCount = "a", int64(len(other))
	}
	var in scenes.Scene
	in.Slices = slices.Concat(other, scenes.GPUs("m", 1, scenes.H100), scenes.GPUs("z", 1, scenes.H100))
	assert.Equal(t, []string{"m", "z"}, cluster.New(in.Objects).NodeNames())
	node := in.Summary().Nodes[1]
	assert.Equal(t, "z", node.Name)
	assert.Equal(t, []string{scenes.GPUOf(0), scenes.GPUOf(1)}, lists.Map(node.GPUs, func(g cluster.GPU) string { return g.Name }))
}
