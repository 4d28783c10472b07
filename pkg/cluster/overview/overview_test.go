package overview_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/scenes"
)

const gib = cluster.Bytes(1) << 30

func TestOverview(t *testing.T) {
	o := overview.Of(scenes.Fleet().Summary())
	assert.Equal(t, []overview.StateCount{
		{State: overview.Ready, Count: 6}, {State: overview.Cordoned, Count: 1}, {State: overview.Switching, Count: 1},
		{State: overview.SwitchFailed, Count: 1}, {State: overview.Unhealthy, Count: 2}, {State: overview.NotReady, Count: 1},
	}, o.States)
	h100 := o.Models[0]
	assert.Equal(t, "NVIDIA H100 80GB HBM3", h100.Name)
	assert.Equal(t, []int{6, 24, 12}, []int{h100.Nodes, h100.GPUs, *h100.Unused})
	assert.Equal(t, []overview.Held{
		{DeviceKind: cluster.DeviceKind{Label: "1g.10gb", Type: gpu.TypeMIG, Profile: "1g.10gb"}, Count: 6},
		{DeviceKind: cluster.DeviceKind{Label: cluster.WholeGPU, Type: gpu.TypeGPU}, Count: 6},
	}, h100.Held)
	// 6 GPUs are held whole, and 6 have one position of eight held and one left over; two nodes
	// take no pods.
	assert.Equal(t, overview.Memory{TotalBytes: 24 * 80 * gib, HeldBytes: 540 * gib, LeftoverBytes: 60 * gib, FreeBytes: 880 * gib, BlockedBytes: 440 * gib}, h100.Memory)
	assert.Equal(t, 8, h100.Fits[0].Count)
	l4 := o.Models[2]
	assert.Equal(t, overview.Memory{TotalBytes: 480 * gib, FreeBytes: 400 * gib, BlockedBytes: 80 * gib}, l4.Memory)

	var nodes []string
	for _, x := range o.Trouble {
		nodes = append(nodes, fmt.Sprintf("%s %s", x.Node, x.State))
	}
	assert.Equal(t, []string{"gpu-01 SwitchFailed", "gpu-03 NotReady", "gpu-05 Unhealthy", "gpu-11 Unhealthy", "gpu-77 Gone"}, nodes)
	assert.Equal(t, []string{"GPU " + scenes.GPUOf(2) + ": it does not answer"}, o.Trouble[2].Reasons)
}

// A node that does not publish a GPU that is held, and has other problems too, is one in trouble.
func TestTroubleNamesANodeOnce(t *testing.T) {
	s := &cluster.Summary{
		Nodes: []cluster.Node{{Name: "node-a", Ready: ptr.To(false), GPUs: []cluster.GPU{{Name: "gpu-a", GPUState: cluster.GPUState{Problem: "it does not answer"}}}}},
		Lost:  []cluster.Held{{Pool: names.PoolName("node-a")}, {Pool: names.PoolName("node-0")}},
	}
	const lost = "a claim holds a device of a GPU that the node does not publish"
	assert.Equal(t, []overview.Trouble{
		{Node: "node-0", State: overview.Gone, Reasons: []string{lost}},
		{Node: "node-a", State: overview.Gone, Reasons: []string{"GPU gpu-a: it does not answer", lost}},
	}, overview.Of(s).Trouble)
}

// Memory that is left of a share can be had.
func TestMemoryOfShares(t *testing.T) {
	for _, n := range scenes.Shared().Summary().Nodes {
		for i := range n.GPUs {
			m := overview.MemoryOf(&n.GPUs[i])
			free := 0.0
			for _, s := range n.GPUs[i].Bar {
				free += s.Positions(cluster.Free)
			}
			assert.InDelta(t, free/float64(n.GPUs[i].Positions), float64(m.FreeBytes)/float64(m.TotalBytes), 0.001, n.GPUs[i].Name)
		}
	}
}

// The parts of the memory of each GPU add up.
func TestMemoryAddsUp(t *testing.T) {
	for name, scene := range scenes.All {
		for _, n := range scene().Summary().Nodes {
			for i := range n.GPUs {
				m := overview.MemoryOf(&n.GPUs[i])
				assert.Equal(t, m.TotalBytes, m.HeldBytes+m.FreeBytes+m.BlockedBytes+m.LeftoverBytes+m.UnknownBytes, "%s: %s", name, n.GPUs[i].Name)
			}
		}
	}
	assert.Equal(t, overview.Memory{}, overview.MemoryOf(&cluster.GPU{}))
	assert.Zero(t, overview.Memory{}.Percent())
}

func TestStateOf(t *testing.T) {
	taint := func(key string, effect resourceapi.DeviceTaintEffect) cluster.Node {
		return cluster.Node{GPUs: []cluster.GPU{{Name: "gpu-a", Taints: []cluster.Taint{{Key: key, Effect: effect, Devices: 1, Of: 2}}}}}
	}
	profile := func(n *gpunodes.Node) cluster.Node {
		p := cluster.ProgressOf(&n.GPUNode)
		return cluster.Node{Profile: &p}
	}
	waits := gpunodes.WithProfile("node-a", "x").Says(names.ConditionRolloutPending, true, names.ReasonWaitsForPlan, "later")
	overdue := gpunodes.WithProfile("node-a", "x").Switches(v1beta1.Draining, "y", "evicts")
	overdue.Status.Switch.DeadlineTime = &overdue.Status.Switch.StartTime
	for name, c := range map[string]struct {
		node cluster.Node
		want overview.State
	}{
		"nothing":                  {cluster.Node{}, overview.Ready},
		"in the last state":        {cluster.Node{Cordoned: true, Ready: ptr.To(false)}, overview.NotReady},
		"a switch's taint":         {taint(names.TaintSwitching, resourceapi.DeviceTaintEffectNoSchedule), overview.Switching},
		"held as of old":           {taint(names.TaintNotOffered, resourceapi.DeviceTaintEffectNoSchedule), overview.Ready},
		"somebody's taint":         {taint("example.com/fan", resourceapi.DeviceTaintEffectNoSchedule), overview.UnexplainedTaint},
		"a taint of no effect":     {taint("example.com/fan", resourceapi.DeviceTaintEffectNone), overview.Ready},
		"unhealthy":                {taint(names.TaintUnhealthy, resourceapi.DeviceTaintEffectNoExecute), overview.Unhealthy},
		"in part":                  {cluster.Node{GPUs: []cluster.GPU{{MissingSlices: 1}}}, overview.Incomplete},
		"applied":                  {profile(gpunodes.WithProfile("node-a", "x")), overview.Ready},
		"waits":                    {profile(waits), overview.Pending},
		"waits for nodes":          {profile(gpunodes.WithProfile("node-a", "x").Switches(v1beta1.Waiting, "y", "waits")), overview.Pending},
		"switching":                {profile(gpunodes.WithProfile("node-a", "x").Switches(v1beta1.Draining, "y", "evicts")), overview.Switching},
		"overdue":                  {profile(overdue), overview.Overdue},
		"rolls back":               {profile(gpunodes.WithProfile("node-a", "x").Switches(v1beta1.RollingBack, "y", "")), overview.SwitchFailed},
		"another system's":         {profile(gpunodes.WithProfile("node-a", "x").Says(names.ConditionConflicted, true, "OtherSystem", "others")), overview.ProfileNotApplied},
		"no such profile":          {profile(gpunodes.WithProfile("node-a", "x").Says(names.ConditionReady, false, names.ReasonProfileNotFound, "no such profile")), overview.ProfileNotApplied},
		"turned off":               {profile(gpunodes.WithProfile("node-a", "x").Says(names.ConditionReady, false, names.ReasonPaused, "off")), overview.Ready},
		"a label before the plans": {profile(gpunodes.WithProfile("node-a", "x").Says(names.ConditionOverridden, true, "LabelHolds", "label")), overview.Ready},
	} {
		got, reasons := overview.StateOf(&c.node, gpunodes.Now)
		assert.Equal(t, c.want, got, name)
		if got.Trouble() && got != overview.NotReady {
			assert.NotEmpty(t, reasons, name)
		} else {
			assert.Empty(t, reasons, name)
		}
	}
}

func TestChanges(t *testing.T) {
	before := scenes.Fleet()
	assert.Empty(t, overview.Changes(before.Summary(), scenes.Fleet().Summary()))

	after := scenes.Fleet()
	after.Nodes[4].Spec.Unschedulable = false
	after.Nodes[10] = scenes.Node("gpu-10", corev1.ConditionFalse, false)
	after.Slices = after.Slices[:len(after.Slices)-4] // of gpu-11
	after.Slices = append(after.Slices, scenes.GPUs("gpu-12", 1, scenes.L4)...)
	after.Claims = append(after.Claims[1:len(after.Claims)-1], scenes.Claim("team-a", "new", "gpu-02", 2, scenes.MIG(2, "3g.40gb", 4)))
	after.GPUNodes[0] = gpunodes.WithProfile("gpu-00", "balanced").GPUs(gpunodes.MIGOn, scenes.GPUOf(0)).GPUNode
	after.GPUNodes[5].Status.Node.GPUs[2].Problems = nil
	after.GPUNodes[2].Status.Node.GPUs[3].GPUModes = gpunodes.MIGOff
	assert.Equal(t, []string{
		"gpu-00: profile balanced",
		"gpu-00: " + scenes.GPUOf(0) + ": released: whole GPU (" + scenes.GPUOf(0) + ") by team-a/train-0",
		"gpu-02: " + scenes.GPUOf(2) + ": held: 3g.40gb (" + scenes.MIG(2, "3g.40gb", 4) + ") by team-a/new",
		"gpu-02: " + scenes.GPUOf(3) + ": mode MIG off",
		"gpu-04: ready",
		"gpu-05: " + scenes.GPUOf(2) + ": no problem any more",
		"gpu-10: NotReady",
		"gpu-12: publishes 1 GPU",
		"gpu-11: publishes no GPUs any more",
		"1 claim waits",
	}, overview.Changes(before.Summary(), after.Summary()))
	assert.Equal(t, []string{
		"gpu-00: profile whole → balanced, Draining: evicts pods from " + scenes.GPUOf(0),
	}, overview.Changes(after.Summary(), before.Summary())[:1])
	assert.Equal(t, "12 nodes, 36 GPUs, 6 Ready, 1 Cordoned, 1 Switching, 1 SwitchFailed, 2 Unhealthy, 1 NotReady, 2 claims wait", overview.Line(before.Summary()))
}

func TestChangesOfTaints(t *testing.T) {
	was := &cluster.Summary{Nodes: []cluster.Node{{Name: "a", GPUs: []cluster.GPU{{Name: "g"}, {Name: "h"}}}}}
	is := &cluster.Summary{Nodes: []cluster.Node{{Name: "a", GPUs: []cluster.GPU{{Name: "g", Taints: []cluster.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}}, {Name: "i", GPUState: cluster.GPUState{Problem: "x"}}}}}}
	assert.Equal(t, []string{"a: g: tainted: k=v:NoSchedule", "a: i: published", "a: h: not published any more"}, overview.Changes(was, is))
	assert.Equal(t, "a: g: no longer tainted: k=v:NoSchedule", overview.Changes(is, was)[0])
}

// A thousand nodes are summed up in a moment.
func BenchmarkSummary(b *testing.B) {
	var in cluster.Objects
	for i := range 1000 {
		name := fmt.Sprintf("gpu-%04d", i)
		in.Slices = append(in.Slices, scenes.GPUs(name, 8, scenes.H100)...)
		in.Nodes = append(in.Nodes, scenes.Node(name, corev1.ConditionTrue, false))
		in.GPUNodes = append(in.GPUNodes, gpunodes.WithProfile(name, "x").GPUs(gpunodes.MIGOn, scenes.GPUOf(0)).GPUNode)
		for slot := range 8 {
			in.Claims = append(in.Claims, scenes.Claim("team", fmt.Sprintf("p-%d-%d", i, slot), name, slot, scenes.MIG(slot, "1g.10gb", 0)))
		}
	}
	for b.Loop() {
		overview.Of(cluster.New(in).Summary(context.Background(), cluster.View{}))
	}
}
