package adopt

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// report is a label that reports the progress of a project's label.
type report struct {
	*labels
	// label is the value of the label that it reports on, empty: it was removed. now is the value
	// of the report.
	label, now string
	// follows: the node has, or gets, what the label names.
	follows bool
}

func (c *Config) reports(of map[string]string) (all []report) {
	for i := range partitioning {
		l := &partitioning[i]
		if _, followed := c.Projects[l.project]; followed && l.state != "" {
			all = append(all, report{labels: l, label: of[l.keys[0]], now: of[l.state]})
		}
	}
	return all
}

// follow says which profile the node follows. all are those that its labels name.
func (r *report) follow(profile *name, all []*name) {
	r.follows = slices.ContainsFunc(all, func(n *name) bool { return n.project == r.project && n.same(profile) })
}

// Labels returns the labels in which projects report progress that the Node should have, by the status
// of its GPUNode. No report stays at pending: whatever keeps the node from its profile is a failure.
func (r *Result) Labels(s *v1beta1.GPUNodeStatus) map[string]string {
	var all map[string]string
	for i := range r.reports {
		one := &r.reports[i]
		value := r.word(one, s)
		unfinished := one.now == one.words.pending || one.now == one.words.rebooting
		if (one.label == "" || value == "") && !unfinished {
			continue
		}
		if value == "" {
			value = one.words.failed
		}
		if all == nil {
			all = map[string]string{}
		}
		all[one.state] = value
	}
	return all
}

// word returns the value of a report; empty while the plugin of the node has not reported.
func (r *Result) word(one *report, s *v1beta1.GPUNodeStatus) string {
	w := one.words
	ready := meta.FindStatusCondition(s.Conditions, names.ConditionReady)
	switch {
	case s.Node == nil:
		return ""
	case !one.follows, r.Problem.Reason != "", s.State == v1beta1.Failed:
		return w.failed
	case s.State == v1beta1.Rebooting:
		return w.rebooting
	case s.Switch != nil && s.State != v1beta1.Idle, meta.IsStatusConditionTrue(s.Conditions, names.ConditionRolloutPending):
		return w.pending
	case ready != nil && ready.Reason == names.ReasonApplied && s.Desired != nil && s.Applied != nil && s.Applied.Hash == s.Desired.Hash && s.Node.AppliedHash == s.Applied.Hash:
		return w.success
	}
	return w.failed // Another system serves the GPUs, there are none, or the profile does not exist.
}
