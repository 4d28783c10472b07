package rollout_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/golden"
)

// nothing finds fields without a value.
var nothing = regexp.MustCompile(`[A-Z]\w*:(false|0|<nil>|0001-01-01 00:00:00 \+0000 UTC)?[ }]`)

func TestObserve(t *testing.T) {
	snapshot := func(hash string) *v1beta1.ProfileSnapshot {
		return &v1beta1.ProfileSnapshot{ProfileName: "x", Hash: hash}
	}
	started := metav1.NewMicroTime(noon.Add(-time.Minute + 300*time.Millisecond))
	record := func(result v1beta1.SwitchResult, reason string) []v1beta1.SwitchRecord {
		return []v1beta1.SwitchRecord{{FromProfileName: "x", ToProfileName: "x", Result: result, Reason: reason, StartTime: started, Duration: metav1.Duration{Duration: 20 * time.Second}}}
	}
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(started.Add(d)) }
	type facts struct {
		moving, joining, failed, aside, changed, damaged, trouble, ready bool
	}
	var told []string
	for name, tt := range map[string]struct {
		change func(*v1beta1.GPUNodeStatus)
		want   facts
	}{
		"at rest":     {func(*v1beta1.GPUNodeStatus) {}, facts{ready: true}},
		"no report":   {func(s *v1beta1.GPUNodeStatus) { s.Node = nil }, facts{}},
		"joins":       {func(s *v1beta1.GPUNodeStatus) { s.Applied = nil }, facts{ready: true, joining: true}},
		"is used":     {func(s *v1beta1.GPUNodeStatus) { s.Applied, s.Node.ClaimCount = nil, 1 }, facts{ready: true}},
		"other owner": {func(s *v1beta1.GPUNodeStatus) { s.Node.OtherSystems = []v1beta1.OtherSystem{{Name: "mig-manager"}} }, facts{ready: true, aside: true}},
		"planning":    {func(s *v1beta1.GPUNodeStatus) { s.State, s.Switch = v1beta1.Planning, &v1beta1.Switch{Attempt: 1} }, facts{ready: true}},
		"draining": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Draining, &v1beta1.Switch{GPUs: []string{"gpu"}}
		}, facts{ready: true, moving: true}},
		"applying":        {func(s *v1beta1.GPUNodeStatus) { s.State, s.Switch = v1beta1.Applying, &v1beta1.Switch{} }, facts{ready: true, moving: true}},
		"taints are left": {func(s *v1beta1.GPUNodeStatus) { s.Node.PublishedTaints = &v1beta1.PublishedTaints{} }, facts{ready: true, moving: true}},
		"taints of long ago": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.PublishedTaints = &v1beta1.PublishedTaints{}
			s.StateChangeTime = &metav1.Time{Time: noon.Add(-time.Minute)}
		}, facts{ready: true}},
		"taints of nobody knows when": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.PublishedTaints, s.StateChangeTime = &v1beta1.PublishedTaints{}, nil
		}, facts{ready: true}},
		// A node that moves needs no place, so a new attempt must not count as moving.
		"taints of long ago, tries again": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.PublishedTaints = &v1beta1.PublishedTaints{}
			s.State, s.Switch = v1beta1.Planning, &v1beta1.Switch{Attempt: 2}
			s.History = record(v1beta1.ResultNotApplied, names.ReasonDrainBlocked)
		}, facts{ready: true}},
		"blocked": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Failed, &v1beta1.Switch{To: *snapshot("new"), Reason: names.ReasonDrainBlocked}
			s.History = record(v1beta1.ResultNotApplied, names.ReasonDrainBlocked)
		}, facts{ready: true, aside: true}},
		"blocked, tries again": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Planning, &v1beta1.Switch{To: *snapshot("new"), Attempt: 2}
			s.History = record(v1beta1.ResultNotApplied, names.ReasonDrainDeadline)
		}, facts{ready: true, aside: true}},
		"refused": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Failed, &v1beta1.Switch{To: *snapshot("new"), Reason: names.ReasonProfileDoesNotFit}
			s.History = record(v1beta1.ResultNotApplied, names.ReasonProfileDoesNotFit)
		}, facts{ready: true, failed: true}},
		"rolled back": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Failed, &v1beta1.Switch{To: *snapshot("new"), Reason: names.ReasonInUse}
			s.History = record(v1beta1.ResultRolledBack, names.ReasonInUse)
		}, facts{ready: true, failed: true, changed: true}},
		"rolled back, tries again": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Waiting, &v1beta1.Switch{To: *snapshot("new"), Attempt: 2}
			s.History = record(v1beta1.ResultRolledBack, names.ReasonHardwareFailed)
		}, facts{ready: true, failed: true, changed: true}},
		"not rolled back": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Failed, &v1beta1.Switch{To: *snapshot("new"), Reason: names.ReasonRollbackFailed}
			s.History = record(v1beta1.ResultRollbackFailed, names.ReasonRollbackFailed)
		}, facts{ready: true, failed: true, changed: true, damaged: true}},
		"a profile that was lost": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Failed, &v1beta1.Switch{From: *snapshot("old"), To: *snapshot("old"), Reason: names.ReasonRollbackFailed}
			s.History = record(v1beta1.ResultRollbackFailed, names.ReasonRollbackFailed)
			s.History[0].Repair = true
		}, facts{ready: true, aside: true, changed: true}},
		"not rolled back before, and not repaired since": {func(s *v1beta1.GPUNodeStatus) {
			s.History = slices.Concat(record(v1beta1.ResultNotApplied, ""), record(v1beta1.ResultRollbackFailed, ""), record(v1beta1.ResultRollbackFailed, ""))
			s.History[1].Repair = true
		}, facts{ready: true, damaged: true}},
		"not rolled back long ago": {func(s *v1beta1.GPUNodeStatus) {
			s.History = slices.Concat(record(v1beta1.ResultRolledBack, ""), record(v1beta1.ResultRollbackFailed, ""))
		}, facts{ready: true}},
		"tries another profile": {func(s *v1beta1.GPUNodeStatus) {
			s.State, s.Switch = v1beta1.Planning, &v1beta1.Switch{To: v1beta1.ProfileSnapshot{ProfileName: "y"}, Attempt: 2}
			s.History = record(v1beta1.ResultRolledBack, names.ReasonHardwareFailed)
		}, facts{ready: true}},
		"works for its users": {func(s *v1beta1.GPUNodeStatus) {
			s.AdmittedHash, s.RequestedHash, s.Node.ClaimCount, s.Node.FreeGPUCount = "admitted", "requested", 3, 5
			s.History = record(v1beta1.ResultSucceeded, "")
		}, facts{ready: true}},
		"two troubles": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.UnhealthyGPUs, s.History = []v1beta1.UnhealthyGPU{{Name: "gpu", DetectionTime: at(2 * time.Second)}}, record(v1beta1.ResultSucceeded, "")
			s.Node.UnpreparedClaims = []v1beta1.UnpreparedClaim{{Name: "claim", FirstFailureTime: at(time.Second)}, {Name: "later", FirstFailureTime: at(3 * time.Second)}}
		}, facts{ready: true, trouble: true}},
		"unhealthy after another switch": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.UnhealthyGPUs, s.History = []v1beta1.UnhealthyGPU{{Name: "gpu", DetectionTime: at(0)}}, slices.Repeat(record(v1beta1.ResultSucceeded, ""), 2)
			s.History[0].ToProfileName = "y"
		}, facts{ready: true}},
		"unhealthy since": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.UnhealthyGPUs, s.History = []v1beta1.UnhealthyGPU{{Name: "gpu", DetectionTime: at(-200 * time.Millisecond)}}, slices.Repeat(record(v1beta1.ResultSucceeded, ""), 2)
		}, facts{ready: true, trouble: true}},
		"unhealthy before": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.UnhealthyGPUs, s.History = []v1beta1.UnhealthyGPU{{Name: "gpu", DetectionTime: at(-time.Second)}}, record(v1beta1.ResultSucceeded, "")
		}, facts{ready: true}},
		"a claim": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.UnpreparedClaims, s.History = []v1beta1.UnpreparedClaim{{Name: "claim", FirstFailureTime: at(time.Second)}}, record(v1beta1.ResultSucceeded, "")
		}, facts{ready: true, trouble: true}},
		"a claim, and no switch is known": {func(s *v1beta1.GPUNodeStatus) {
			s.Node.UnpreparedClaims = []v1beta1.UnpreparedClaim{{Name: "claim", FirstFailureTime: at(time.Second)}}
		}, facts{ready: true}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}, Status: v1beta1.GPUNodeStatus{
				State: v1beta1.Idle, Desired: snapshot("old"), Applied: snapshot("old"), StateChangeTime: &metav1.Time{Time: noon},
				Node: &v1beta1.NodeReport{AppliedHash: "old"},
			}}
			tt.change(&g.Status)
			n := rollout.Observe(g, map[string]string{"zone": "a"}, true, noon.Add(time.Second))
			assert.Equal(t, tt.want, facts{n.Moving, n.Joining, n.Failed, n.Aside, n.Changed, n.Damaged, n.Trouble != nil, n.Ready})
			trouble := n.Trouble
			n.Trouble = nil
			told = append(told, fmt.Sprintf("%s: %s, trouble: %+v\n", name, nothing.ReplaceAllString(fmt.Sprintf("%+v", n), ""), trouble))
		})
	}
	slices.Sort(told)
	golden.Equal(t, "testdata/nodes.txt", strings.Join(told, ""))
}
