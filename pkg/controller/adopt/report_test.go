package adopt

import (
	"testing"

	"github.com/stretchr/testify/assert"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Whatever happens to a switch, other projects learn how it ends.
func TestReports(t *testing.T) {
	inState := func(s v1beta1.State, change ...func(*v1beta1.GPUNodeStatus)) *v1beta1.GPUNodeStatus {
		profile := &v1beta1.ProfileSnapshot{Hash: "new"}
		out := &v1beta1.GPUNodeStatus{
			State: s, Desired: profile, Applied: profile, Node: &v1beta1.NodeReport{AppliedHash: "new"},
			Conditions: []metav1.Condition{{Type: names.ConditionReady, Status: metav1.ConditionTrue, Reason: names.ReasonApplied}},
		}
		if s != v1beta1.Idle {
			out.Switch = &v1beta1.Switch{}
		}
		for _, c := range change {
			c(out)
		}
		return out
	}
	ready := func(reason string) func(*v1beta1.GPUNodeStatus) {
		return func(s *v1beta1.GPUNodeStatus) { s.Conditions[0].Reason = reason }
	}
	pending := func(s *v1beta1.GPUNodeStatus) {
		s.Conditions = append(s.Conditions, metav1.Condition{Type: names.ConditionRolloutPending, Status: metav1.ConditionTrue})
	}
	for name, tt := range map[string]struct {
		status *v1beta1.GPUNodeStatus
		// label is the label's value and now its report before; not: the node follows another.
		label, now string
		not        bool
		problem    string
		mig, dcm   string // empty: not written
	}{
		"plans":                {inState(v1beta1.Planning), "new", "success", false, "", "pending", "in-progress"},
		"waits":                {inState(v1beta1.Waiting), "new", "pending", false, "", "pending", "in-progress"},
		"waits for a rollout":  {inState(v1beta1.Idle, pending), "new", "success", false, "", "pending", "in-progress"},
		"drains":               {inState(v1beta1.Draining), "new", "pending", false, "", "pending", "in-progress"},
		"reboots":              {inState(v1beta1.Rebooting), "new", "pending", false, "", "rebooting", "in-progress"},
		"rolls back":           {inState(v1beta1.RollingBack), "new", "pending", false, "", "pending", "in-progress"},
		"is done":              {inState(v1beta1.Idle), "new", "pending", false, "", "success", "success"},
		"is not what it says":  {inState(v1beta1.Idle, func(s *v1beta1.GPUNodeStatus) { s.Node.AppliedHash = "old" }), "new", "pending", false, "", "failed", "failure"},
		"failed":               {inState(v1beta1.Failed), "new", "pending", false, "", "failed", "failure"},
		"unknown":              {inState(v1beta1.Idle, ready(names.ReasonProfileNotFound)), "typo", "success", false, "", "failed", "failure"},
		"a bad ConfigMap":      {inState(v1beta1.Draining), "typo", "success", false, names.ReasonConfigMapInvalid, "failed", "failure"},
		"paused":               {inState(v1beta1.Idle, ready(names.ReasonPaused)), "new", "pending", false, "", "failed", "failure"},
		"another owner":        {inState(v1beta1.Idle, ready(names.ReasonOtherSystem)), "new", "pending", false, "", "failed", "failure"},
		"overridden":           {inState(v1beta1.Idle), "other", "pending", true, "", "failed", "failure"},
		"no GPUs":              {inState(v1beta1.Idle, ready(names.ReasonNoGPUs)), "new", "", false, "", "failed", "failure"},
		"no report":            {&v1beta1.GPUNodeStatus{}, "new", "", false, "", "", ""},
		"no report any more":   {&v1beta1.GPUNodeStatus{}, "new", "pending", false, "", "failed", "failure"},
		"removed":              {inState(v1beta1.Idle), "", "failed", false, "", "", ""},
		"removed in a switch":  {inState(v1beta1.Idle), "", "pending", false, "", "success", "success"},
		"removed, and another": {inState(v1beta1.Idle), "", "pending", true, "", "failed", "failure"},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			r := &Result{Problem: Problem{Reason: tt.problem}}
			for i, value := range map[int]string{1: tt.mig, 2: tt.dcm} {
				l := &partitioning[i]
				now := map[string]string{"pending": l.words.pending, "failed": l.words.failed, "success": l.words.success}[tt.now]
				r.reports = append(r.reports, report{labels: l, label: tt.label, now: now, follows: !tt.not})
				if value != "" {
					want[l.state] = value
				}
			}
			got := r.Labels(tt.status)
			if len(want) == 0 {
				assert.Empty(t, got)
				return
			}
			assert.Equal(t, want, got)
		})
	}
}
