package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// ReasonDisabled, ReasonNotNamed or ReasonNodeNotFound. Message says it for people.
	Keep    string
	Message string
	// Missing is the name of the missing profile, for ReasonProfileNotFound.
	Missing string
	// Overruled says which of label and spec does not apply, empty if they agree. Overruler
	// is the reason: ReasonLabelHolds or ReasonSpecHolds.
	Overruled, Overruler string
}

// Named has the profiles that the label and the GPUNode of a node name.
type Named struct {
	label, spec  string
	controlPlane bool
	disabled     bool
}

// NamedBy reads the names from a GPUNode and the labels of its node.
func NamedBy(gpuNode *v1alpha1.GPUNode, labels map[string]string) Named {
	_, controlPlane := labels[ControlPlaneLabel]
	return Named{
		label:        labels[v1alpha1.LabelProfile],
		spec:         gpuNode.Spec.Profile,
		controlPlane: controlPlane,
		disabled:     gpuNode.Spec.Enabled != nil && !*gpuNode.Spec.Enabled,
	}
}

// Profile is the name of the desired profile, and its source.
func (n Named) Profile() (string, v1alpha1.Source) {
	switch {
	case n.label != "" && !n.controlPlane:
		return n.label, v1alpha1.FromLabel
	case n.spec != "":
		return n.spec, v1alpha1.FromSpec
	}
	return v1alpha1.DefaultProfile, v1alpha1.FromDefault
}

// overruled says which of label and spec does not apply, and why.
func (n Named) overruled() (reason, message string) {
	switch {
	case n.controlPlane && n.label != "" && n.label != n.spec:
		return v1alpha1.ReasonSpecHolds, fmt.Sprintf("on control plane nodes only spec.profile of the GPUNode counts, so the label %s=%s is ignored; "+
			"set spec.profile instead", v1alpha1.LabelProfile, n.label)
	case !n.controlPlane && n.label != "" && n.spec != "" && n.label != n.spec:
		return v1alpha1.ReasonLabelHolds, fmt.Sprintf("the node's label %s=%s has precedence over spec.profile %s of the GPUNode; remove one of them",
			v1alpha1.LabelProfile, n.label, n.spec)
	}
	return "", ""
}

// Choose returns the desired profile of a node. found is the profile that Named.Profile names,
// nil if it does not exist; others are the names of the existing profiles.
func Choose(n Named, found *v1alpha1.PartitionProfile, others []string, defaults v1alpha1.SwitchPolicy) Choice {
	c := Choice{Policy: withDefaults(nil, defaults)}
	c.Overruler, c.Overruled = n.overruled()
	name, source := n.Profile()
	switch {
	case n.disabled:
		c.Keep = v1alpha1.ReasonDisabled
		c.Message = "spec.enabled is false"
	case n.controlPlane && n.spec == "":
		c.Keep = v1alpha1.ReasonControlPlaneNotNamed
		c.Message = "the node belongs to the control plane, and spec.profile of its GPUNode is not set"
	case found != nil:
		c.Desired = &v1alpha1.ProfileSnapshot{Profile: name, Source: source, Hash: profile.Hash(name, found.Spec.Rules), Rules: found.Spec.Rules}
		c.Policy = withDefaults(found.Spec.Switch, defaults)
	case source == v1alpha1.FromDefault:
		c.Desired = noProfile()
	default:
		c.Keep, c.Missing = v1alpha1.ReasonProfileNotFound, name
		slices.Sort(others)
		c.Message = fmt.Sprintf("%s names PartitionProfile %s, which does not exist; existing profiles: %s",
			sourceText(source), name, cmp.Or(strings.Join(others, ", "), "none"))
	}
	return c
}

// WithoutNode is the choice for a GPUNode without a Node. Its labels are not known: a node that
// registers again lacks them for a moment, and must not be switched for that.
func WithoutNode(defaults v1alpha1.SwitchPolicy) Choice {
	return Choice{
		Policy: withDefaults(nil, defaults), Keep: v1alpha1.ReasonNodeNotFound,
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
		return "the node's label " + v1alpha1.LabelProfile
	case v1alpha1.FromSpec:
		return "the GPUNode's spec.profile"
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
