package adopt

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// A ConfigMap that cannot be used has one event about it, and one when it can be again.
func TestConfigMapsAreReported(t *testing.T) {
	c := migConfigs
	object := configMapOf(c, map[string]string{c.Key: migConfig})
	p := newPlace(t, Config{Projects: map[Project]ConfigMap{MIGParted: c}}, object)
	told := func() (all []string) {
		p.Report(t.Context())
		for len(p.events.Events) > 0 {
			all = append(all, <-p.events.Events)
		}
		return all
	}
	set := func(data map[string]string) {
		object.Data = data
		require.NoError(t, p.api.Update(t.Context(), object))
	}
	before, _, _ := strings.Cut(migConfig, "  bad:")
	good := map[string]string{c.Key: before}
	only := func(text string) {
		t.Helper()
		got := told()
		require.Len(t, got, 1)
		assert.Contains(t, got[0], text)
		assert.Empty(t, told(), "it is told once")
	}
	only("Warning ConfigMapInvalid Nodes that name these configurations keep what they have: ")
	set(good)
	only("Normal ConfigMapValid Key config.yaml can be used again")
	set(map[string]string{"other": "", "another": ""})
	only("ConfigMap gpu-operator/mig has no key config.yaml; it has: another, other")
	set(map[string]string{c.Key: "mig-configs: ["})
	only("Warning ConfigMapInvalid Nodes that name these configurations keep what they have: ConfigMap gpu-operator/mig key config.yaml: ")
	set(map[string]string{c.Key: "gpu-config-profiles: {cpx: {}}"})
	only("its format is that of the ")
	set(good)
	only("can be used again")
	set(map[string]string{c.Key: before + "  rest:\n  - {devices: [], mig-enabled: false}\n  - {devices: all, mig-enabled: true, mig-devices: {}}\n"})
	only("Normal ConfigMapPartsIgnored Key config.yaml has parts without a counterpart: rest: ")
	p.fail = func(string, client.Object) error { return errors.New("away") }
	set(map[string]string{})
	assert.Empty(t, told(), "it is read again later")
	p.fail = nil
	require.NoError(t, p.api.Delete(t.Context(), object))
	only("ConfigMap gpu-operator/mig does not exist")
}
