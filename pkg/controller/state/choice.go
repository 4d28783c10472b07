package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// ControlPlaneLabel marks the nodes of the control plane.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Choice is the desired profile of a node, and why.
type Choice struct {
	// Desired is the current version of the desired profile. Nil: the node keeps the applied
	// profile, for the reason Keep.
	Desired *v1alpha1.ProfileSnapshot
	// Policy is that of the profile, with defaults filled in.
	Policy v1alpha1.SwitchPolicy
	// Keep is the reason why the node keeps its applied profile: ReasonProfileNotFound,
	// ReasonConfigMapInvalid, ReasonDisabled, ReasonNotNamed or ReasonNodeNotFound. Message
	// says it for people.
	Keep    string
	Message string
	// Missing is the name of the profile, for ReasonProfileNotFound and
	// ReasonConfigMapInvalid.
	Missing string
	// Overruled says which of labels and spec does not apply, empty if they agree. Overruler
	// is the reason: ReasonLabelsDisagree, ReasonLabelHolds or ReasonSpecHolds.
	Overruled, Overruler string
	// Reports are the labels to report the progress in.
	Reports []Report
	// Pending says that and why the rollout of another profile has not admitted the node yet.
	// Desired is the applied profile then.
	Pending *Pending
}

// Pending is why a node waits for another profile.
type Pending struct{ Reason, Message string }

// Given is what a PartitionPlan gives a node: a version of a profile, nil: none yet.
type Given struct {
	Plan, Profile string
	Snapshot      *v1alpha1.ProfileSnapshot
}

// Named has the profiles that the labels and the GPUNode of a node name.
type Named struct {
	// labels name profiles, by precedence.
	labels       []Name
	spec         string
	plan         *Given
	controlPlane bool
	// held says which label keeps the node as it is; empty: none does.
	held     string
	disabled bool
	// last is the last profile that a label of another project named.
	last    *v1alpha1.ProfileSnapshot
	reports []Report
}

// NamedBy reads the names from a GPUNode and the labels of its node. tools are the other
// projects whose labels count, plan is what the plan that selects the node gives it.
func NamedBy(gpuNode *v1alpha1.GPUNode, labels map[string]string, tools Tools, plan *Given) Named {
	_, controlPlane := labels[ControlPlaneLabel]
	n := Named{
		spec:         gpuNode.Spec.Profile,
		plan:         plan,
		controlPlane: controlPlane,
		disabled:     gpuNode.Spec.Enabled != nil && !*gpuNode.Spec.Enabled,
	}
	if value := labels[names.LabelProfile]; value != "" {
		n.labels = append(n.labels, Name{Source: v1alpha1.FromLabel, Profile: value, Value: value, label: names.LabelProfile})
	}
	n.addTools(labels, tools)
	if d := gpuNode.Status.Desired; d != nil && tools.follow(d.Source) {
		n.last = d
	}
	return n
}

// Profile is the name of the desired profile.
func (n Named) Profile() Name {
	switch {
	case len(n.labels) > 0 && !n.controlPlane:
		return n.labels[0]
	case n.spec != "":
		return Name{Source: v1alpha1.FromSpec, Profile: n.spec}
	case n.plan != nil:
		return Name{Source: v1alpha1.FromPlan, Profile: n.plan.Profile, Value: n.plan.Plan}
	}
	return Name{Source: v1alpha1.FromDefault, Profile: names.DefaultProfile}
}

// Found is what there is under the name that Named.Profile returns.
type Found struct {
	// Spec is the profile, nil: there is none. Others are the names of those that exist.
	Spec   *v1alpha1.PartitionProfileSpec
	Others []string
	// Problem says why it is not known whether there is one, or why it cannot be used.
	Problem string
}

// Choose returns the desired profile of a node. found is what Named.Profile names.
func Choose(n Named, found Found, defaults v1alpha1.SwitchPolicy) Choice {
	c := Choice{Policy: withDefaults(nil, defaults)}
	c.Overruler, c.Overruled = n.overruled()
	name := n.Profile()
	if c.Overruled == "" {
		c.Overruler, c.Overruled = n.overrulesPlan(name)
	}
	c.Reports = n.reportsOn(name)
	switch {
	case n.disabled:
		c.Keep = names.ReasonDisabled
		c.Message = "spec.enabled is false"
	case n.controlPlane && n.spec == "":
		c.Keep = names.ReasonControlPlaneNotNamed
		c.Message = "the node belongs to the control plane, and spec.profile of its GPUNode is not set"
	case n.holds():
		c.Keep = names.ReasonDisabled
		c.Message = "the node has the label " + n.held
	case n.removed():
		// As in these projects, the removal of the label changes nothing.
		c.Desired = n.last.DeepCopy()
	case name.Source == v1alpha1.FromPlan && n.plan.Snapshot != nil:
		c.Desired = n.plan.Snapshot.DeepCopy()
		if found.Spec != nil {
			c.Policy = withDefaults(found.Spec.Switch, defaults)
		}
	case name.Source == v1alpha1.FromPlan:
		c.Keep, c.Missing = names.ReasonProfileNotFound, name.Profile
		c.Message = fmt.Sprintf("PartitionPlan %s names PartitionProfile %s, which does not exist", name.Value, name.Profile)
	case found.Problem != "":
		c.Keep, c.Missing = names.ReasonConfigMapInvalid, name.Profile
		c.Message = fmt.Sprintf("%s is %s, which cannot be used: %s", sourceText(name.Source), name.Profile, found.Problem)
	case found.Spec != nil:
		c.Desired = &v1alpha1.ProfileSnapshot{
			Profile: name.Profile, Source: name.Source,
			Hash: profile.Hash(name.Profile, found.Spec.Rules), Rules: found.Spec.Rules,
		}
		c.Policy = withDefaults(found.Spec.Switch, defaults)
	case name.Source == v1alpha1.FromDefault:
		c.Desired = noProfile()
	default:
		c.Keep, c.Missing = names.ReasonProfileNotFound, name.Profile
		slices.Sort(found.Others)
		c.Message = fmt.Sprintf("%s names %s %s, which does not exist; existing profiles: %s",
			sourceText(name.Source), name.kind(), name.Profile, cmp.Or(strings.Join(found.Others, ", "), "none"))
	}
	return c
}

// FollowsPlan tells whether the node has what its plan gives it.
func (n Named) FollowsPlan() bool {
	return n.plan != nil && !n.disabled && !n.holds() && n.Profile().Source == v1alpha1.FromPlan
}

// overrulesPlan says that something else than the plan applies, empty: it does not.
func (n Named) overrulesPlan(name Name) (reason, message string) {
	if n.plan == nil || n.controlPlane || name.Source == v1alpha1.FromPlan || name.Profile == n.plan.Profile {
		return "", ""
	}
	return names.ReasonPlanOverruled, fmt.Sprintf("%s names %s, and has precedence over PartitionPlan %s, which names %s",
		sourceText(name.Source), name.Profile, n.plan.Plan, n.plan.Profile)
}

// Wait has a node keep what it has until its rollout admits it.
func (c *Choice) Wait(s *v1alpha1.GPUNodeStatus, why *Pending) {
	c.Pending = why
	c.Desired = s.Applied.DeepCopy()
	if c.Desired == nil {
		c.Desired = s.Desired.DeepCopy()
	}
	if s.Switch != nil {
		c.Policy = s.Switch.Policy
	}
}

// WithoutNode is the choice for a GPUNode without a Node. Its labels are not known: a node that
// registers again lacks them for a moment, and must not be switched for that.
func WithoutNode(defaults v1alpha1.SwitchPolicy) Choice {
	return Choice{
		Policy: withDefaults(nil, defaults), Keep: names.ReasonNodeNotFound,
		Message: "the Node does not exist, so its labels are not known",
	}
}

// noProfile is the desired state of a node without a profile.
func noProfile() *v1alpha1.ProfileSnapshot {
	return &v1alpha1.ProfileSnapshot{Source: v1alpha1.FromDefault, Hash: profile.Hash("", nil)}
}

func sourceText(s v1alpha1.Source) string {
	switch s {
	case v1alpha1.FromLabel:
		return "the node's label " + names.LabelProfile
	case v1alpha1.FromSpec:
		return "the GPUNode's spec.profile"
	case v1alpha1.FromPlan:
		return "its PartitionPlan"
	}
	if t := toolOf(s); t != nil {
		return "the node's label " + t.labels[0]
	}
	return "nobody"
}

// ProfileText is a profile's name for people.
func ProfileText(name string) string {
	if name == "" {
		return "no profile"
	}
	return "profile " + name
}

// defaultDrainDeadline is the default of drainDeadline.
const defaultDrainDeadline = 10 * time.Minute

// withDefaults fills in the defaults of a policy.
func withDefaults(p *v1alpha1.SwitchPolicy, defaults v1alpha1.SwitchPolicy) v1alpha1.SwitchPolicy {
	var out v1alpha1.SwitchPolicy
	if p != nil {
		out = *p.DeepCopy()
	}
	if out.DrainDeadline == nil {
		out.DrainDeadline = &metav1.Duration{Duration: defaultDrainDeadline}
		if defaults.DrainDeadline != nil {
			out.DrainDeadline.Duration = defaults.DrainDeadline.Duration
		}
	}
	out.AfterDeadline = cmp.Or(out.AfterDeadline, defaults.AfterDeadline, v1alpha1.GiveUp)
	out.Reboot = cmp.Or(out.Reboot, defaults.Reboot, v1alpha1.RebootNever)
	if out.PauseClients == nil {
		pause := defaults.PauseClients == nil || *defaults.PauseClients
		out.PauseClients = &pause
	}
	return out
}
