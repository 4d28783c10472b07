package progress_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/progress"
	"github.com/tranche-dev/tranche/pkg/progress/progresstest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = progresstest.Now

const draining = "asks pods to leave gpu-a: pod team/train-0 (gpu-a-cpx-0) is not evicted: budget team/train allows no eviction; " +
	"until 14:05:00 UTC at the latest, then it is given up and everything stays as it is"

// TestNode: what is said of a node in each state.
func TestNode(t *testing.T) {
	for name, test := range map[string]struct {
		node  *progresstest.Node
		title string
		says  []string
	}{
		"follows":  {progresstest.Follows("n", "cpx"), "profile cpx", nil},
		"unwanted": {progresstest.Follows("n", ""), "", nil},
		"draining": {progresstest.Follows("n", "spx").Switches(v1alpha1.Draining, "cpx", draining, "gpu-a"), "profile spx → cpx",
			[]string{"Draining since 2m, 8m left: " + draining + "."}},
		"first profile": {progresstest.Follows("n", "").Switches(v1alpha1.Planning, "cpx", "the plan is made"), "profile none → cpx",
			[]string{"Planning since 2m, 8m left: the plan is made."}},
		"changed profile": {progresstest.Follows("n", "cpx").Switches(v1alpha1.Waiting, "cpx", "waits for other nodes"), "profile cpx, as it was before it was changed",
			[]string{"Waiting since 2m, 8m left: waits for other nodes."}},
		"failed": {progresstest.Follows("n", "spx").Fails("cpx", "DrainDeadline", "not all pods left the cards within 10m0s: pod team/train-0", true), "profile spx → cpx",
			[]string{"Failed 3m ago (DrainDeadline): profile cpx could not be reached: not all pods left the cards within 10m0s: pod team/train-0. " +
				"The node is as before, with profile spx. Try 2 begins in 60s."}},
		"does not fit": {progresstest.Follows("n", "").Fails("cpx", "ProfileDoesNotFit", "gpu-a is no AMD card.", false), "profile none → cpx",
			[]string{"Failed 3m ago (ProfileDoesNotFit): profile cpx could not be reached: gpu-a is no AMD card. " +
				"The node is as before, with no profile. It is tried again when the profile, its policy, the GPUs or the plugin's settings change."}},
		"not rolled back": {progresstest.Follows("n", "spx").Fails("cpx", "RollbackFailed", "the driver did not load", true), "profile spx → cpx",
			[]string{"Failed 3m ago (RollbackFailed): profile cpx could not be reached: the driver did not load. Try 2 begins in 60s."}},
		"overruled": {progresstest.Follows("n", "cpx").Says(v1alpha1.ConditionOverruled, true, "LabelHolds", "the node's label holds"), "profile cpx",
			[]string{"The node's label holds."}},
		"conflict": {progresstest.Follows("n", "").Says(v1alpha1.ConditionConflict, true, "OtherOwner", "other systems serve cards of the node").
			Says(v1alpha1.ConditionReady, false, "Conflict", "other systems serve cards of the node"), "",
			[]string{"Other systems serve cards of the node."}},
		"no such profile": {progresstest.Follows("n", "cpx").Says(v1alpha1.ConditionReady, false, progress.ProfileNotFound, "there is no profile typo; it stays with profile cpx"), "profile cpx",
			[]string{"There is no profile typo; it stays with profile cpx."}},
		"disabled": {progresstest.Follows("n", "cpx").Says(v1alpha1.ConditionReady, true, progress.Disabled, "spec.enabled is false."), "profile cpx",
			[]string{"spec.enabled is false."}},
		"control plane": {progresstest.Follows("n", "").Says(v1alpha1.ConditionReady, true, progress.NotNamed, "the node is of the control plane"), "", nil},
		"empty message": {progresstest.Follows("n", "cpx").Says(v1alpha1.ConditionOverruled, true, "LabelHolds", "."), "profile cpx", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			far := progress.Of(&test.node.GPUNode)
			assert.Equal(t, test.title, far.Title())
			var says []string
			for _, s := range far.Sentences(now) {
				says = append(says, s.Text)
			}
			assert.Equal(t, test.says, says)
		})
	}
	assert.Empty(t, progress.Of(&v1alpha1.GPUNode{}).Sentences(now), "a node of which nobody has said anything")
}

func TestTimes(t *testing.T) {
	n := progresstest.Follows("n", "spx").Switches(v1alpha1.Applying, "cpx", "", "gpu-a")
	n.Status.Switch.Attempt = 3
	far := progress.Of(&n.GPUNode)
	assert.Equal(t, "Applying since 2m, 8m left, try 3.", far.Doings(now))
	assert.Equal(t, "Applying since 20m, its time was over 10m ago", far.During(now.Add(18*time.Minute)))
	assert.Equal(t, "Applying since 0s, 15m left", far.During(now.Add(-7*time.Minute)), "clocks differ")
	n.Status.Switch.Deadline = nil
	assert.Equal(t, "Applying since 2m", progress.Of(&n.GPUNode).During(now))
	assert.Equal(t, "14:05:00 UTC", progress.Clock(*far.Deadline))

	assert.Equal(t, "no profile", progress.TaintProfile("none"))
	assert.Equal(t, "profile cpx", progress.TaintProfile("cpx"))
	assert.Equal(t, "when the profile, its policy, the GPUs or the plugin's settings change", far.Again())
	far.Rebooted = true
	assert.Equal(t, "when the profile or its policy changes", far.Again())
	far.Blockers = []v1alpha1.Blocker{{Namespace: "team", Name: "web", UID: "u"}}
	assert.Contains(t, far.Again(), "when what is in the way can leave")

	n.Fails("cpx", "InUse", "", true)
	assert.Contains(t, progress.Of(&n.GPUNode).Failure(now.Add(time.Hour)), "Try 2 begins now.")

	// A message of the state before says nothing of this one.
	n.Switches(v1alpha1.Applying, "cpx", "").Says(v1alpha1.ConditionSwitching, true, "Draining", "asks pods to leave")
	assert.Equal(t, "Applying since 2m, 8m left.", progress.Of(&n.GPUNode).Doings(now))
}

func TestCards(t *testing.T) {
	n := progresstest.Follows("n", "spx").Cards("SPX NPS1", "gpu-a", "gpu-b").Switches(v1alpha1.Draining, "cpx", "", "gpu-b")
	n.Status.Node.Cards[0].Pending, n.Status.Node.Cards[0].Problem = "later", "hot"
	product := "NVIDIA H100 80GB HBM3"
	want := []progress.Card{
		{Name: "gpu-a", Product: product, Mode: "SPX NPS1", Pending: "later", Problem: "hot"},
		{Name: "gpu-b", Product: product, Mode: "SPX NPS1", Change: "compute mode CPX"},
	}
	assert.Equal(t, want, progress.Cards(&n.Plan("compute mode CPX").GPUNode))
	n.Status.Node.Task.Switch = "another"
	want[1].Change = "being switched"
	assert.Equal(t, want, progress.Cards(&n.GPUNode))
	assert.Nil(t, progress.Cards(&v1alpha1.GPUNode{}))

	for state, keepsOff := range map[v1alpha1.State]bool{
		v1alpha1.Planning: false, v1alpha1.Waiting: false, v1alpha1.Tainted: true, v1alpha1.Draining: true, v1alpha1.RollingBack: true, v1alpha1.Failed: false,
	} {
		n.Status.State = state
		assert.Equal(t, keepsOff, progress.Of(&n.GPUNode).KeepsOff("gpu-b"), state)
		assert.False(t, progress.Of(&n.GPUNode).KeepsOff("gpu-a"), state)
	}
}

func TestRestricts(t *testing.T) {
	for want, rules := range map[bool][]v1alpha1.Rule{
		true: {
			{MIG: &v1alpha1.MIG{Mode: v1alpha1.MIGStatic}}, {MIG: &v1alpha1.MIG{Mode: v1alpha1.MIGDisabled}}, {MIG: &v1alpha1.MIG{Profiles: []string{"1g"}}},
			{MIG: &v1alpha1.MIG{WholeCards: ptr.To(false)}}, {AMD: &v1alpha1.AMD{ComputePartition: "CPX"}}, {AMD: &v1alpha1.AMD{MemoryPartition: "NPS1"}},
			{Sharing: &v1alpha1.Sharing{Enabled: ptr.To(false)}},
		},
		false: {{}, {MIG: &v1alpha1.MIG{Mode: v1alpha1.MIGDynamic}}, {AMD: &v1alpha1.AMD{}}, {Sharing: &v1alpha1.Sharing{Replicas: ptr.To(int32(3))}}},
	} {
		for _, rule := range rules {
			assert.Equal(t, want, progress.Of(&progresstest.Follows("n", "p", rule).GPUNode).Restricts(), "%+v", rule)
		}
	}
}

func profile(name string, rules ...v1alpha1.Rule) v1alpha1.PartitionProfile {
	return v1alpha1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PartitionProfileSpec{Rules: rules}}
}

func profiles() []progress.Profile {
	nvidia, amd := &v1alpha1.CardSelector{Vendor: "nvidia"}, &v1alpha1.CardSelector{Vendor: "amd"}
	static := func(p string, n *int32) *v1alpha1.MIG {
		return &v1alpha1.MIG{Mode: v1alpha1.MIGStatic, Partitions: []v1alpha1.StaticPartition{{Profile: p, Count: n}}}
	}
	balanced := static("1g.10gb", ptr.To(int32(2)))
	balanced.Partitions = append(balanced.Partitions, v1alpha1.StaticPartition{Profile: "3g.40gb"})
	two := int32(2)
	return progress.Profiles([]v1alpha1.PartitionProfile{
		profile("dynamic"),
		profile("all-1g.10gb", v1alpha1.Rule{Cards: nvidia, MIG: static("1g.10gb", nil)}),
		profile("all-balanced", v1alpha1.Rule{Cards: nvidia, MIG: balanced}),
		profile("cpx-nps4", v1alpha1.Rule{Cards: amd, AMD: &v1alpha1.AMD{ComputePartition: "CPX", MemoryPartition: "NPS4"}}),
		profile("whole", v1alpha1.Rule{Cards: nvidia, MIG: &v1alpha1.MIG{Mode: v1alpha1.MIGDisabled}, Sharing: &v1alpha1.Sharing{Enabled: ptr.To(false)}}),
		profile("mixture",
			v1alpha1.Rule{Cards: &v1alpha1.CardSelector{Products: []string{"*H100*"}, Count: &two}, MIG: &v1alpha1.MIG{Profiles: []string{"1g", "3g"}, WholeCards: ptr.To(false)}},
			v1alpha1.Rule{Cards: &v1alpha1.CardSelector{Indexes: []int32{0}, PCIAddresses: []string{"0000:c1:00.0"}}},
			v1alpha1.Rule{Cards: &v1alpha1.CardSelector{Count: &two}, LegacyResource: "Replica"},
			v1alpha1.Rule{Sharing: &v1alpha1.Sharing{Replicas: ptr.To(int32(10)), Strategy: v1alpha1.TimeSlicing}}),
	}, []v1alpha1.GPUNode{
		progresstest.Follows("node-b", "all-1g.10gb").GPUNode,
		progresstest.Follows("node-a", "all-1g.10gb").GPUNode,
		progresstest.Follows("node-c", "deleted").Switches(v1alpha1.Draining, "cpx-nps4", "").GPUNode,
		progresstest.Follows("node-d", "").GPUNode,
	})
}

func TestProfiles(t *testing.T) {
	all := profiles()
	assert.Equal(t, progress.Profile{Name: "all-1g.10gb", Says: "nvidia: partitions 1g.10gb", Wanted: []string{"node-a", "node-b"}, Followed: []string{"node-a", "node-b"}}, all[0])
	golden(t, "profiles", func(width int) string { return progress.DrawProfiles(all, width) })
	assert.Equal(t, "There are no PartitionProfiles.\n", progress.DrawProfiles(nil, 80))
}

func TestSwitches(t *testing.T) {
	n := progresstest.Follows("node-a", "spx").
		Had("", "spx", v1alpha1.ResultSucceeded, "", "", 2300*time.Millisecond, 0).
		Had("spx", "cpx", v1alpha1.ResultRolledBack, "HardwareFailed", "the driver silently kept NPS1", 92*time.Second, 12)
	for name, node := range map[string]*progresstest.Node{
		"no-switches":     progresstest.Follows("node-a", "spx"),
		"switches":        {GPUNode: *n.DeepCopy()},
		"switches-now":    (&progresstest.Node{GPUNode: *n.DeepCopy()}).Switches(v1alpha1.Draining, "cpx-nps4", draining, "gpu-a"),
		"switches-failed": (&progresstest.Node{GPUNode: *n.DeepCopy()}).Fails("cpx-nps4", "DrainDeadline", "not all pods left the cards within 10m0s: pod team/train-0 (gpu-a-cpx-0)", true),
	} {
		golden(t, name, func(width int) string { return progress.DrawSwitches(progress.SwitchesOf(&node.GPUNode), width, now) })
	}
	text, err := json.Marshal(progress.SwitchesOf(&n.GPUNode).History[0])
	require.NoError(t, err)
	assert.JSONEq(t, `{"from":"spx","to":"cpx","result":"RolledBack","reason":"HardwareFailed","message":"the driver silently kept NPS1",
		"started":"2026-11-20T12:57:00Z","seconds":92,"evicted":12}`, string(text))
}

func TestDrawNode(t *testing.T) {
	spec := progresstest.Follows("node-a", "dynamic").Cards("MIG on", "gpu-0000-0f-00-0", "gpu-0000-1f-00-0")
	spec.Status.Wanted.Source = v1alpha1.FromSpec
	spec.Status.Node.Cards[0].Problem = "it does not answer"
	byDefault := progresstest.Follows("node-a", "default")
	byDefault.Status.Wanted.Source = v1alpha1.FromDefault
	for name, n := range map[string]*progresstest.Node{
		"node": spec,
		"node-switching": progresstest.Follows("node-a", "spx").Cards("SPX NPS1", "gpu-a", "gpu-b").
			Switches(v1alpha1.Draining, "cpx", draining, "gpu-a").Plan("compute mode CPX").
			Says(v1alpha1.ConditionOverruled, true, "LabelHolds", "the node's label tranche.dev/profile=cpx holds; spec.profile spx of the GPUNode does not, until the label is taken off"),
		"node-default":       byDefault,
		"node-control-plane": progresstest.Follows("node-a", "").Says(v1alpha1.ConditionReady, true, progress.NotNamed, "the node is of the control plane and its GPUNode's spec.profile names no profile, so it keeps what it has"),
	} {
		golden(t, name, func(width int) string {
			return progress.DrawNode("node-a", progress.Of(&n.GPUNode), progress.Cards(&n.GPUNode), width, now)
		})
	}
}

// golden compares what is drawn at some widths with files. To accept a change:
// go test ./pkg/progress -update
func golden(t *testing.T, name string, draw func(width int) string) {
	t.Helper()
	for _, width := range []int{60, 80, 140} {
		got := draw(width)
		path := filepath.Join("testdata", fmt.Sprintf("%s.%d.txt", name, width))
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, "%s is out of date: run with -update and read the difference", path)
		for line := range strings.Lines(got) {
			if width > 60 {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(line)), width, line)
			}
		}
	}
}
