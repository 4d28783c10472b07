package rollout_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/golden"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) // a Saturday

// fleet is a plan and its nodes, without switches: they are what the test says.
type fleet struct {
	t       *testing.T
	plan    *v1beta1.PartitionPlan
	profile *v1beta1.ProfileSnapshot
	nodes   []*rollout.Node
	now     time.Time
	last    rollout.Decision
	events  []string
	// story is what people see, all of which a golden file has. Nil: nobody looks.
	story *strings.Builder
}

// stories are those of the fleets of a test, by its name.
var stories sync.Map

func newFleet(t *testing.T, nodes int, strategy v1beta1.RolloutStrategy) *fleet {
	story, known := stories.LoadOrStore(t.Name(), &strings.Builder{})
	f := &fleet{t: t, now: noon, plan: &v1beta1.PartitionPlan{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, profile: version("1"), story: story.(*strings.Builder)}
	if !known {
		t.Cleanup(func() {
			stories.Delete(t.Name())
			if f.story != nil && f.story.Len() > 0 {
				golden.Equal(t, filepath.Join("testdata", strings.ReplaceAll(t.Name(), "/", "-")+".txt"), f.story.String())
			}
		})
	}
	f.plan.Spec = v1beta1.PartitionPlanSpec{ProfileName: "x", Strategy: strategy}
	for i := range nodes {
		f.nodes = append(f.nodes, &rollout.Node{Name: fmt.Sprintf("node-%02d", i), State: v1beta1.Idle, Ready: true,
			Desired: "old", Applied: "old", Reported: "old", Created: noon.Add(-time.Hour)})
	}
	return f
}

func version(hash string) *v1beta1.ProfileSnapshot {
	return &v1beta1.ProfileSnapshot{ProfileName: "x", Hash: hash}
}

// decide decides, and admits what may start.
func (f *fleet) decide() *fleet {
	f.t.Helper()
	p := rollout.Plan{PartitionPlan: f.plan, Profile: f.profile, Nodes: f.nodes, Now: f.now, MaxUnavailable: intstr.FromInt32(1)}
	f.last = p.Decide()
	for _, e := range f.last.Events {
		f.events = append(f.events, e.Reason)
	}
	f.plan.Status = f.last.Status
	f.writes(f.last.Admitted)
	f.tell()
	again := rollout.Plan{PartitionPlan: f.plan, Profile: f.profile, Nodes: f.nodes, Now: f.now, MaxUnavailable: intstr.FromInt32(1)}
	second := again.Decide()
	require.Equal(f.t, f.last.Admitted, second.Admitted, "decided twice, the same")
	require.Empty(f.t, second.Events)
	require.Equal(f.t, f.last.Status, second.Status)
	return f
}

// tell adds a decision to the story.
func (f *fleet) tell() {
	if f.story == nil {
		return
	}
	fmt.Fprintf(f.story, "%s: %s may start", f.now.Format(time.TimeOnly), cmp.Or(strings.Join(f.admitted(), " "), "nobody"))
	if wake := f.last.Wake; !wake.IsZero() {
		fmt.Fprintf(f.story, ", next at %s", wake.Format(time.TimeOnly))
	}
	s := &f.last.Status
	fmt.Fprintf(f.story, "\n  %+v\n", s.NodeCounts)
	for _, n := range slices.Concat(s.FailedNodes, s.SetAsideNodes) {
		fmt.Fprintf(f.story, "  %+v\n", n)
	}
	if s.MeanSwitchDuration != nil {
		fmt.Fprintf(f.story, "  a switch takes %s, the rollout until %v\n", s.MeanSwitchDuration.Duration, s.EstimatedCompletionTime)
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(f.story, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, e := range f.last.Events {
		fmt.Fprintf(f.story, "  %s %s: %s\n", e.Type, e.Reason, e.Note)
	}
}

// writes writes into the nodes what was decided.
func (f *fleet) writes(admitted map[string]string) {
	for _, n := range f.nodes {
		n.Admitted = cmp.Or(admitted[n.Name], n.Keeps())
	}
}

func (f *fleet) node(name string) *rollout.Node {
	for _, n := range f.nodes {
		if n.Name == name {
			return n
		}
	}
	f.t.Fatal(name)
	return nil
}

// admitted are the nodes that may start.
func (f *fleet) admitted() (names []string) {
	for _, n := range f.nodes {
		if n.Admitted != "" && n.Admitted != n.Applied {
			names = append(names, n.Name)
		}
	}
	return names
}

// arrive has all admitted nodes arrive at their target.
func (f *fleet) arrive() *fleet {
	for _, n := range f.nodes {
		if target := n.Admitted; target != "" && target != n.Applied {
			n.Desired, n.Applied, n.Reported, n.State, n.Moving, n.To, n.Failed = target, target, target, v1beta1.Idle, false, "", false
			n.Started, n.Ended = f.now, f.now.Add(10*time.Second)
		}
	}
	return f
}

// fail has an admitted node fail, and be rolled back.
func (f *fleet) fail(nodes ...string) *fleet {
	for _, name := range nodes {
		n := f.node(name)
		require.NotEmpty(f.t, n.Admitted, name)
		n.Desired, n.To, n.State, n.Failed = n.Admitted, n.Admitted, v1beta1.Failed, true
		n.Changed = true
		n.Reason, n.Message = names.ReasonHardwareFailed, "no"
	}
	return f
}

func (f *fleet) after(d time.Duration) *fleet {
	f.now = f.now.Add(d)
	return f.decide()
}

func (f *fleet) progressing() string {
	return meta.FindStatusCondition(f.plan.Status.Conditions, names.ConditionProgressing).Reason
}

func intOrPercent(s string) *intstr.IntOrString {
	v := intstr.Parse(s)
	return &v
}

func steps(soak time.Duration, nodes ...string) (all []v1beta1.RolloutStep) {
	for _, n := range nodes {
		all = append(all, v1beta1.RolloutStep{Nodes: *intOrPercent(n), Soak: metav1.Duration{Duration: soak}})
	}
	return all
}
