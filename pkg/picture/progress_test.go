package picture

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

var now = gpunodes.Now

const draining = "evicts pods from gpu-a: pod team/train-0 (gpu-a-cpx-0) is not evicted: budget team/train allows no eviction; " +
	"until 14:05:00 UTC at the latest, then it is canceled and the GPUs stay as they are"

func profile(name string, rules ...v1beta1.Rule) v1beta1.PartitionProfile {
	return v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.PartitionProfileSpec{Rules: rules}}
}

func profiles() []cluster.Profile {
	nvidia, amd := &v1beta1.GPUSelector{Vendor: "nvidia"}, &v1beta1.GPUSelector{Vendor: "amd"}
	static := func(p string, n *int32) *v1beta1.MIG {
		return &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: p, Count: n}}}
	}
	balanced := static("1g.10gb", ptr.To(int32(2)))
	balanced.Partitions = append(balanced.Partitions, v1beta1.StaticPartition{Profile: "3g.40gb"})
	two, replica := int32(2), &v1beta1.ExtendedResource{Device: v1beta1.DeviceGPUReplica}
	return cluster.Profiles([]v1beta1.PartitionProfile{
		profile("dynamic"),
		profile("all-1g.10gb", v1beta1.Rule{GPUs: nvidia, MIG: static("1g.10gb", nil)}),
		profile("all-balanced", v1beta1.Rule{GPUs: nvidia, MIG: balanced}),
		profile("cpx-nps4", v1beta1.Rule{GPUs: amd, XCP: &v1beta1.XCP{ComputePartition: "CPX", MemoryPartition: "NPS4"}}),
		profile("whole", v1beta1.Rule{GPUs: nvidia, MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}, Sharing: &v1beta1.Sharing{WholeGPUs: ptr.To(false)}}),
		profile("rest", v1beta1.Rule{GPUs: &v1beta1.GPUSelector{MIGSupport: v1beta1.MIGCapable, Indexes: []int32{1}}, MIG: &v1beta1.MIG{Mode: v1beta1.MIGNoPartitions}},
			v1beta1.Rule{GPUs: &v1beta1.GPUSelector{MIGSupport: v1beta1.MIGIncapable}, ExtendedResource: replica}, v1beta1.Rule{Unchanged: true}),
		profile("mixture",
			v1beta1.Rule{GPUs: &v1beta1.GPUSelector{ProductNames: []string{"*H100*"}, Count: &two}, MIG: &v1beta1.MIG{Profiles: []string{"1g", "3g"}, WholeGPUs: ptr.To(false)}},
			v1beta1.Rule{GPUs: &v1beta1.GPUSelector{Indexes: []int32{0}, PCIBusIDs: []string{"0000:c1:00.0"}}},
			v1beta1.Rule{GPUs: &v1beta1.GPUSelector{Count: &two}, ExtendedResource: replica},
			v1beta1.Rule{Sharing: &v1beta1.Sharing{Replicas: ptr.To(int32(10)), Strategy: v1beta1.TimeSlicing}}),
	}, []v1beta1.GPUNode{
		gpunodes.WithProfile("node-b", "all-1g.10gb").GPUNode,
		gpunodes.WithProfile("node-a", "all-1g.10gb").GPUNode,
		gpunodes.WithProfile("node-c", "deleted").Switches(v1beta1.Draining, "cpx-nps4", "").GPUNode,
		gpunodes.WithProfile("node-d", "").GPUNode,
	})
}

func TestProfiles(t *testing.T) {
	all := profiles()
	assert.Equal(t, "nvidia: partitions 1g.10gb", all[0].Says())
	assert.Equal(t, [][]string{{"node-a", "node-b"}, {"node-a", "node-b"}}, [][]string{all[0].Desired, all[0].Applied})
	all[0].Fitting = []string{"node-a", "node-b"}
	checkDrawn(t, "profiles", func(p *Page) { DrawProfiles(p, all, 80) })
	assert.Equal(t, "There are no PartitionProfiles.\n\nNote: You are not allowed to list nodes.\n", drawn(t, Screen{Width: 80}, func(p *Page) { DrawProfiles(p, nil, 0, unread...) }))
}

func TestClasses(t *testing.T) {
	checkDrawn(t, "classes", func(p *Page) {
		DrawClasses(p, []cluster.Class{
			{Name: "gpu-mig-1g-10gb.tranche.dev", ExtendedResourceName: "nvidia.com/mig-1g.10gb", GPUCount: 24, Devices: []string{"1g.10gb"}},
			{Name: "gpu-mig-1g-5gb.tranche.dev"},
			{Name: "gpu.tranche.dev", GPUCount: 36, Devices: []string{"whole GPU"}},
		}, 1)
	})
	assert.Equal(t, "There are no DeviceClasses of Tranche.\n", drawn(t, Screen{Width: 80}, func(p *Page) { DrawClasses(p, nil, 0) }))
}

func TestSwitches(t *testing.T) {
	n := gpunodes.WithProfile("node-a", "spx").
		Had("", "spx", v1beta1.ResultSucceeded, "", "", 2300*time.Millisecond, 0).
		Had("spx", "cpx", v1beta1.ResultRolledBack, "HardwareFailed", "the driver silently kept NPS1", 92*time.Second, 12)
	for name, node := range map[string]*gpunodes.Node{
		"no-switches":     gpunodes.WithProfile("node-a", "spx"),
		"switches":        {GPUNode: *n.DeepCopy()},
		"switches-now":    (&gpunodes.Node{GPUNode: *n.DeepCopy()}).Switches(v1beta1.Draining, "cpx-nps4", draining, "gpu-a"),
		"switches-failed": (&gpunodes.Node{GPUNode: *n.DeepCopy()}).Fails("cpx-nps4", "DrainDeadline", "not all pods left the GPUs within 10m0s: pod team/train-0 (gpu-a-cpx-0)", true),
	} {
		checkDrawn(t, name, func(p *Page) { DrawSwitches(p, &node.GPUNode, now) })
	}
}

func TestDrawNode(t *testing.T) {
	spec := gpunodes.WithProfile("node-a", "dynamic").GPUs(gpunodes.MIGOn, "gpu-0000-0f-00-0", "gpu-0000-1f-00-0")
	spec.Annotations, spec.Status.Desired.Source = nil, v1beta1.FromSpec // a person set it
	spec.Status.Node.GPUs[0].Problems = []v1beta1.GPUProblem{{Cause: "no-answer", Message: "it does not answer"}}
	byPlan := gpunodes.WithProfile("node-a", "balanced").Says(names.ConditionRolloutPending, true, names.ReasonWaitsForPlan, "plan canary gives the node revision 3 of profile balanced later")
	byPlan.Status.Desired.Source, byPlan.Status.Desired.PlanName = v1beta1.FromPlan, "canary"
	byDefault := gpunodes.WithProfile("node-a", "default")
	byDefault.Status.Desired.Source = v1beta1.FromDefault
	for name, n := range map[string]*gpunodes.Node{
		"node": spec,
		"node-switching": gpunodes.WithProfile("node-a", "spx").GPUs(gpunodes.XCP("SPX", "NPS1"), "gpu-a", "gpu-b").
			Switches(v1beta1.Draining, "cpx", draining, "gpu-a").Plan("compute mode CPX").
			Says(names.ConditionOverridden, true, "LabelHolds", "the node's label tranche.dev/profile=cpx has precedence over spec.profileName spx of the GPUNode; remove one of them"),
		"node-default":       byDefault,
		"node-plan":          byPlan,
		"node-control-plane": gpunodes.WithProfile("node-a", "").Says(names.ConditionReady, true, names.ReasonControlPlaneNotNamed, "the node belongs to the control plane, and spec.profileName of its GPUNode is not set"),
	} {
		var requested cluster.Requested
		var unread text.Unread
		switch name {
		case "node":
			amounts := func(memory, compute string) corev1.ResourceList {
				return corev1.ResourceList{names.ResourceGPUMemory: resource.MustParse(memory), names.ResourceGPUCompute: resource.MustParse(compute)}
			}
			requested = cluster.Requested{Sum: amounts("120Gi", "1500"), Of: amounts("160Gi", "2k")}
		case "node-default":
			unread = read.Requests.Forbidden()
		}
		checkDrawn(t, name, func(p *Page) { DrawNode(p, &n.GPUNode, requested, unread, now) })
	}
}

// checkDrawn compares what is drawn at some widths with files.
func checkDrawn(t *testing.T, name string, draw func(*Page)) {
	t.Helper()
	for _, width := range []int{60, 80, 140} {
		got := drawn(t, Screen{Width: width}, draw)
		golden.Equal(t, filepath.Join("testdata", fmt.Sprintf("%s.%d.txt", name, width)), got)
		for line := range strings.Lines(got) {
			if width > 60 {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(line)), width, line)
			}
		}
	}
}
