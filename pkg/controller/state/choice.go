package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// Choice is the desired profile of a node, and why.
type Choice struct {
	// Desired is the current version of the desired profile. Nil: the node keeps the applied
	// profile, for the reason Keep.
	Desired *v1beta1.ProfileSnapshot
	// Policy is that of the profile, with defaults filled in.
	Policy v1beta1.SwitchPolicy
	// Keep is the reason why the node keeps its applied profile: ReasonProfileNotFound,
	// ReasonConfigMapInvalid, ReasonPaused, ReasonControlPlaneNotNamed or ReasonNodeNotFound.
	// Message explains it.
	Keep    string
	Message string
	// Missing is the name of the profile, for ReasonProfileNotFound and
	// ReasonConfigMapInvalid.
	Missing string
	// SetBy is who names the profile, empty: nobody, it is the one for all nodes.
	SetBy string
	// Overridden says what does not apply because something else has precedence.
	Overridden Overridden
	// Pending says that and why the rollout of another profile has not admitted the node yet.
	// Wanted is the hash of that profile, and Desired the applied one then.
	Pending *Pending
	Wanted  string
}

// Overridden is what does not apply, and why. It is empty if there is nothing.
type Overridden struct{ Reason, Message string }

// Pending is why a node waits for another profile.
type Pending struct{ Reason, Message string }

// Given is what a PartitionPlan gives a node: a version of a profile, nil: none yet.
type Given struct {
	Plan, Profile string
	Snapshot      *v1beta1.ProfileSnapshot
}

// Named has the profiles that a GPUNode and the plan of its node name.
type Named struct {
	spec         string
	plan         *Given
	controlPlane bool
	paused       bool
	// from are the labels of the node that the spec was set by, empty: a person set it.
	from string
	// hashes are those that the node's status has: the profile may have the same content.
	hashes []string
}

// NamedBy reads the names from a GPUNode. plan is what the plan that selects the node gives it.
func NamedBy(gpuNode *v1beta1.GPUNode, controlPlane bool, plan *Given) Named {
	return Named{
		spec: gpuNode.Spec.ProfileName, plan: plan, controlPlane: controlPlane,
		paused: gpuNode.Spec.Paused,
		from:   gpuNode.Annotations[names.AnnotationProfileFrom],
		hashes: hashesOf(&gpuNode.Status),
	}
}

// Profile returns the name of the desired profile, and where it comes from.
func (n Named) Profile() (string, v1beta1.Source) {
	switch {
	case n.spec != "" && n.from != "":
		return n.spec, v1beta1.FromLabel
	case n.spec != "":
		return n.spec, v1beta1.FromSpec
	case n.plan != nil:
		return n.plan.Profile, v1beta1.FromPlan
	}
	return names.DefaultProfile, v1beta1.FromDefault
}

// who says who names the profile.
func (n Named) who() string {
	switch _, source := n.Profile(); source {
	case v1beta1.FromPlan:
		return "PartitionPlan " + n.plan.Plan
	case v1beta1.FromLabel:
		return "the node's label " + n.from
	}
	return "the GPUNode's spec.profileName"
}

// Found is what there is under the name that Named.Profile returns.
type Found struct {
	// Spec is the profile, nil: there is none. Others are the names of those that exist.
	Spec   *v1beta1.PartitionProfileSpec
	Others []string
}

// Choose returns the desired profile of a node. found is what Named.Profile names.
func Choose(n Named, found Found, defaults v1beta1.SwitchPolicy) Choice {
	c := Choice{Policy: withDefaults(nil, defaults), Overridden: n.overridesPlan()}
	name, source := n.Profile()
	if source != v1beta1.FromDefault {
		c.SetBy = n.who()
	}
	switch {
	case n.paused:
		c.Keep = names.ReasonPaused
		c.Message = "spec.paused is true"
		if n.from != "" {
			c.Message += " (set by the node's label " + n.from + ")"
		}
	case n.controlPlane && n.spec == "":
		c.Keep = names.ReasonControlPlaneNotNamed
		c.Message = "the node belongs to the control plane, and spec.profileName of its GPUNode is not set"
	case source == v1beta1.FromPlan && n.plan.Snapshot != nil:
		c.Desired = n.plan.Snapshot.DeepCopy()
		if found.Spec != nil {
			c.Policy = withDefaults(found.Spec.Switch, defaults)
		}
	case source == v1beta1.FromPlan:
		c.Refuse(names.ReasonProfileNotFound, name, fmt.Sprintf("%s names PartitionProfile %s, which does not exist", n.who(), name))
	case found.Spec != nil:
		desired := profile.Snapshot(name, found.Spec.Rules, n.hashes...)
		desired.Source = source
		c.Desired = &desired
		c.Policy = withDefaults(found.Spec.Switch, defaults)
	case source == v1beta1.FromDefault:
		c.Desired = noProfile(n.hashes...)
	default:
		slices.Sort(found.Others)
		c.Refuse(names.ReasonProfileNotFound, name, fmt.Sprintf("%s names %s %s, which does not exist; existing profiles: %s",
			n.who(), v1beta1.ProfileKind, name, cmp.Or(strings.Join(found.Others, ", "), "none")))
	}
	return c
}

// Refuse sets the choice to what the node has because another profile cannot be used, unless the node
// keeps it anyway.
func (c *Choice) Refuse(reason, profile, message string) {
	if c.Keep == "" {
		c.Desired, c.Keep, c.Missing, c.Message = nil, reason, profile, message
	}
}

// FollowsPlan reports whether the node has what its plan gives it.
func (n Named) FollowsPlan() bool { return n.plan != nil && !n.paused && n.spec == "" }

// overridesPlan says that something else than the plan applies.
func (n Named) overridesPlan() Overridden {
	if n.plan == nil || n.controlPlane || n.spec == "" || n.spec == n.plan.Profile {
		return Overridden{}
	}
	return Overridden{Reason: names.ReasonPlanOverridden, Message: fmt.Sprintf("%s names %s, and has precedence over PartitionPlan %s, which names %s",
		n.who(), n.spec, n.plan.Plan, n.plan.Profile)}
}

// Wait sets the choice to what the node has, until its rollout admits it.
func (c *Choice) Wait(s *v1beta1.GPUNodeStatus, why *Pending) {
	c.Pending, c.Wanted = why, c.Desired.Hash
	c.Desired = s.Applied.DeepCopy()
	if c.Desired == nil {
		c.Desired = s.Desired.DeepCopy()
	}
	if s.Switch != nil {
		c.Policy = s.Switch.Policy
	}
}

// WithoutNode returns the choice for a GPUNode without a Node. Its labels are not known: a node that
// registers again lacks them for a moment, and must not be switched for that.
func WithoutNode(defaults v1beta1.SwitchPolicy) Choice {
	return Choice{
		Policy: withDefaults(nil, defaults), Keep: names.ReasonNodeNotFound,
		Message: "the Node does not exist, so its labels are not known",
	}
}

// noProfile returns the desired state of a node without a profile.
func noProfile(hashes ...string) *v1beta1.ProfileSnapshot {
	s := profile.Snapshot("", nil, hashes...)
	s.Source = v1beta1.FromNone
	return &s
}

func hashesOf(s *v1beta1.GPUNodeStatus) []string {
	snapshots := []*v1beta1.ProfileSnapshot{s.Applied, s.Desired}
	if s.Switch != nil {
		snapshots = append(snapshots, &s.Switch.To, &s.Switch.From)
	}
	hashes := []string{s.RequestedHash, s.AdmittedHash}
	for _, p := range snapshots {
		if p != nil {
			hashes = append(hashes, p.Hash)
		}
	}
	return hashes
}

// defaultDrainDeadline is the default of drainDeadline.
const defaultDrainDeadline = 10 * time.Minute

// withDefaults fills in the defaults of a policy.
func withDefaults(p *v1beta1.SwitchPolicy, defaults v1beta1.SwitchPolicy) v1beta1.SwitchPolicy {
	var out v1beta1.SwitchPolicy
	if p != nil {
		out = *p.DeepCopy()
	}
	if out.DrainDeadline == nil {
		out.DrainDeadline = &metav1.Duration{Duration: defaultDrainDeadline}
		if defaults.DrainDeadline != nil {
			out.DrainDeadline.Duration = defaults.DrainDeadline.Duration
		}
	}
	out.AfterDeadline = cmp.Or(out.AfterDeadline, defaults.AfterDeadline, v1beta1.GiveUp)
	out.Reboot = cmp.Or(out.Reboot, defaults.Reboot, v1beta1.RebootNever)
	out.NodeTaintEffect = cmp.Or(out.NodeTaintEffect, v1beta1.NodeTaintNone)
	if out.PauseMonitoring == nil {
		pause := defaults.PauseMonitoring == nil || *defaults.PauseMonitoring
		out.PauseMonitoring = &pause
	}
	return out
}
