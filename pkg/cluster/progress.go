package cluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// Progress is the progress of a node with its profile.
type Progress struct {
	State v1beta1.State
	// Desired, Applied and Switch are those of the node's GPUNode, empty if it has none.
	Desired, Applied v1beta1.ProfileSnapshot
	Switch           v1beta1.Switch
	// Label is the node's label by which the GPUNode names the profile.
	Label string
	// UpToDate is true if the desired profile is applied, in its current version.
	UpToDate bool
	// Doing is what the controller does in this state.
	Doing string
	// Overridden says which of label and spec is ignored, Conflict which other systems serve the
	// GPUs, and Kept why the desired profile is not applied otherwise.
	Overridden, Conflict, Kept string
	// KeptReason is the reason of the condition Ready, if Kept is set.
	KeptReason string
	// Pending says what the node waits for before it gets another profile, or another version.
	Pending string
	// Unpublished is true if the node has GPUs and publishes none of them.
	Unpublished bool
}

// ProgressOf returns the progress of a node.
func ProgressOf(n *v1beta1.GPUNode) Progress {
	s := &n.Status
	out := Progress{
		State: s.State, Desired: ptr.Deref(s.Desired, v1beta1.ProfileSnapshot{}), Applied: ptr.Deref(s.Applied, v1beta1.ProfileSnapshot{}),
		Switch: ptr.Deref(s.Switch, v1beta1.Switch{}),
	}
	if out.Desired.Source == v1beta1.FromLabel {
		out.Label = n.Annotations[names.AnnotationProfileFrom]
	}
	out.UpToDate = s.State == v1beta1.Idle && s.Desired != nil && s.Applied != nil && s.Desired.Hash == s.Applied.Hash
	if c := when(s.Conditions, names.ConditionSwitching); c.Reason == string(s.State) {
		out.Doing = c.Message
	}
	out.Pending = when(s.Conditions, names.ConditionRolloutPending).Message
	out.Overridden = when(s.Conditions, names.ConditionOverridden).Message
	out.Conflict = when(s.Conditions, names.ConditionConflicted).Message
	if c := meta.FindStatusCondition(s.Conditions, names.ConditionReady); c != nil && out.rests() && out.Conflict == "" {
		if c.Status != metav1.ConditionTrue || !slices.Contains(contented, c.Reason) {
			out.Kept, out.KeptReason = c.Message, c.Reason
		}
	}
	return out
}

// contented are the reasons of Ready that need no explanation.
var contented = []string{names.ReasonApplied, names.ReasonNoGPUs}

// when returns a condition that is true, or an empty one.
func when(all []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(all, kind); c != nil && c.Status == metav1.ConditionTrue {
		return *c
	}
	return metav1.Condition{}
}

func (n Progress) rests() bool { return n.State == "" || n.State == v1beta1.Idle }

// Switching reports whether a switch is under way.
func (n Progress) Switching() bool { return !n.rests() && n.State != v1beta1.Failed }

// PluginGone reports whether the kubelet plugin does not run on the node, which has GPUs.
func (n Progress) PluginGone() bool { return n.Unpublished && !n.Switching() && n.Conflict == "" }

// KeepsOff reports whether a GPU is tainted because it is being switched.
func (n Progress) KeepsOff(gpuID string) bool {
	switch n.State {
	case "", v1beta1.Idle, v1beta1.Planning, v1beta1.Waiting, v1beta1.Failed:
		return false
	}
	return slices.Contains(n.Switch.GPUs, gpuID)
}

// Restricts reports whether the applied profile leaves out devices that GPUs could offer. GPUs that
// a rule leaves unchanged may have such a layout.
func (n Progress) Restricts() bool {
	rules, err := profile.StoredRules(&n.Applied)
	if err != nil {
		return true // another version of Tranche knows
	}
	return slices.ContainsFunc(rules, func(r v1beta1.Rule) bool {
		if m := r.MIG; m != nil && (m.Mode == v1beta1.MIGStatic || m.Mode == v1beta1.MIGNoPartitions || m.Mode == v1beta1.MIGDisabled || len(m.Profiles) > 0 || (m.WholeGPUs != nil && !*m.WholeGPUs)) {
			return true
		}
		if a := r.XCP; a != nil && (a.ComputePartition != "" || a.MemoryPartition != "") {
			return true
		}
		return r.Unchanged || r.Sharing != nil && r.Sharing.WholeGPUs != nil && !*r.Sharing.WholeGPUs
	})
}

// GPUState is what a node's plugin and switch say about a GPU.
type GPUState struct {
	// HardwareMode has the current modes.
	HardwareMode v1beta1.GPUModes
	// Change is what the switch changes, in words. Empty: the GPU does not change.
	Change string
	// Pending is the part of the profile that waits until claims are released.
	Pending string
	// Problem is what is wrong with the GPU.
	Problem string
}

// unsaid describes a change that the plugin does not describe.
const unsaid = "being switched"

// GPUsOf returns the states of the GPUs that a node's plugin reports, in their order.
func GPUsOf(n *v1beta1.GPUNode) []GPUState {
	s := &n.Status
	if s.Node == nil {
		return nil
	}
	far := ProgressOf(n)
	what := map[string]string{}
	if t := s.Node.Task; t != nil && s.Switch != nil && t.SwitchID == s.Switch.ID {
		for i := range t.Changes {
			what[t.Changes[i].GPU] = t.Changes[i].Description
		}
	}
	out := make([]GPUState, 0, len(s.Node.GPUs))
	for i := range s.Node.GPUs {
		r := &s.Node.GPUs[i]
		c := GPUState{HardwareMode: r.GPUModes, Pending: r.Pending, Problem: v1beta1.ProblemText(r.Problems)}
		if far.Switching() && slices.Contains(far.Switch.GPUs, r.Name) {
			if c.Change = what[r.Name]; c.Change == "" {
				c.Change = unsaid
			}
		}
		out = append(out, c)
	}
	return out
}
