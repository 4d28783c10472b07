package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/profile/thirdparty"
	"github.com/tranche-dev/tranche/pkg/text"
)

// ConfigMap is a ConfigMap with the configuration file of another project.
type ConfigMap struct{ Namespace, Name, Key string }

// Tools are the other projects whose node labels count. Each has the ConfigMap with its
// configurations; without one (the zero value), labels name PartitionProfiles.
type Tools map[v1alpha1.Source]ConfigMap

// follow tells whether the labels of a project count.
func (t Tools) follow(s v1alpha1.Source) bool {
	_, ok := t[s]
	return ok
}

// tool is another project whose node labels can name a profile.
type tool struct {
	source v1alpha1.Source
	labels []string
	// prefix is in the names of PartitionProfiles before the values of the labels.
	prefix string
	// state is the label that reports progress; empty: there is none. words are its values.
	state string
	words words
}

// words are the values of a label that reports progress.
type words struct{ pending, rebooting, success, failed string }

// tools are the projects by precedence. The values are those of mig-manager
// (NVIDIA/mig-parted, cmd/nvidia-mig-manager) and of AMD's device config manager
// (ROCm/device-config-manager, docs/configuration/configmap.md).
var tools = []tool{
	{
		source: v1alpha1.FromMIGParted, labels: []string{names.LabelMIGConfig},
		state: names.LabelMIGConfigState, words: words{"pending", "rebooting", "success", "failed"},
	},
	{
		source: v1alpha1.FromDeviceConfigManager, labels: []string{names.LabelGPUConfigProfile},
		state: names.LabelGPUConfigProfileState, words: words{"in-progress", "in-progress", "success", "failure"},
	},
	{source: v1alpha1.FromKaiwo, labels: []string{names.LabelKaiwoProfile}},
	{source: v1alpha1.FromNos, labels: []string{names.LabelNos, names.LabelNosOlder}, prefix: "nos-"},
}

func toolOf(s v1alpha1.Source) *tool {
	i := slices.IndexFunc(tools, func(t tool) bool { return t.source == s })
	if i < 0 {
		return nil
	}
	return &tools[i]
}

// NodeLabels are the keys of all labels of nodes that matter for these projects.
func (t Tools) NodeLabels() (keys []string) {
	for _, known := range tools {
		if !t.follow(known.source) {
			continue
		}
		keys = append(keys, known.labels...)
		if known.state != "" {
			keys = append(keys, known.state)
		}
		if known.source == v1alpha1.FromKaiwo {
			keys = append(keys, names.LabelKaiwoEnabled)
		}
	}
	return keys
}

// Name is a name of a profile, and who says it.
type Name struct {
	Source v1alpha1.Source
	// Profile is the name of a PartitionProfile, or of a configuration in ConfigMap.
	Profile   string
	ConfigMap ConfigMap
	// Value is that of the label.
	Value string

	label string
}

func (n Name) text() string { return "label " + n.label + "=" + n.Value }

// kind is what has the name.
func (n Name) kind() string {
	if n.ConfigMap == (ConfigMap{}) {
		return v1alpha1.ProfileKind
	}
	return fmt.Sprintf("in key %s of ConfigMap %s/%s the configuration", n.ConfigMap.Key, n.ConfigMap.Namespace, n.ConfigMap.Name)
}

// same tells whether two names are those of the same profile.
func (n Name) same(o Name) bool { return n.Profile == o.Profile && n.ConfigMap == o.ConfigMap }

// addTools adds what the labels of other projects name.
func (n *Named) addTools(labels map[string]string, enabled Tools) {
	for _, t := range tools {
		configMap, ok := enabled[t.source]
		if !ok {
			continue
		}
		if t.source == v1alpha1.FromKaiwo {
			// Without the label, Kaiwo does not partition the node.
			switch value, ok := labels[names.LabelKaiwoEnabled]; {
			case !ok:
				continue
			case value != "true":
				if len(n.labels) == 0 {
					n.held = names.LabelKaiwoEnabled + "=" + value
				}
				continue
			}
		}
		for _, label := range t.labels {
			if value := labels[label]; value != "" {
				n.labels = append(n.labels, Name{Source: t.source, Profile: nameIn(configMap, t.prefix, value), ConfigMap: configMap, Value: value, label: label})
			}
		}
		if t.state != "" {
			n.reports = append(n.reports, Report{tool: t, label: labels[t.labels[0]], now: labels[t.state]})
		}
	}
}

// nameIn is the name of a profile for the value of a label: that in the ConfigMap, otherwise
// that of a PartitionProfile.
func nameIn(configMap ConfigMap, prefix, value string) string {
	if configMap != (ConfigMap{}) {
		return value
	}
	name, err := thirdparty.ObjectName(prefix + value)
	if err != nil {
		return value // No PartitionProfile has this name.
	}
	return name
}

// holds tells whether a label keeps the node as it is.
func (n Named) holds() bool { return n.held != "" && !n.controlPlane }

// removed tells whether the label of another project was removed and nothing else names a
// profile.
func (n Named) removed() bool {
	return n.last != nil && !n.controlPlane && len(n.labels) == 0 && n.spec == "" && n.plan == nil && !n.holds()
}

// NamesNothing tells whether there is nothing to find for Named.Profile.
func (n Named) NamesNothing() bool { return n.disabled || n.holds() || n.removed() }

// overruled says which of labels and spec does not apply, and why.
func (n Named) overruled() (reason, message string) {
	if len(n.labels) == 0 {
		return "", ""
	}
	first := n.labels[0]
	spec := Name{Profile: n.spec}
	if n.controlPlane {
		others := n.differ(spec)
		if len(others) == 0 {
			return "", ""
		}
		return names.ReasonSpecHolds, fmt.Sprintf("on control plane nodes only spec.profile of the GPUNode counts, so the %s is ignored; "+
			"set spec.profile instead", strings.Join(others, " and the "))
	}
	others := n.differ(first)
	reason = names.ReasonLabelsDisagree
	if len(others) == 0 {
		reason = names.ReasonLabelHolds
	}
	if n.spec != "" && !first.same(spec) {
		others = append(others, "spec.profile "+n.spec+" of the GPUNode")
	}
	if len(others) == 0 {
		return "", ""
	}
	what := "one of them"
	if len(others) > 1 {
		what = "all but one of them"
	}
	return reason, fmt.Sprintf("the node's %s has precedence over %s; remove %s", first.text(), text.List(others, mostNamed), what)
}

// differ are the labels that name something else.
func (n Named) differ(from Name) (others []string) {
	for _, l := range n.labels {
		if !l.same(from) {
			others = append(others, l.text())
		}
	}
	return others
}

// Report is a label that reports the progress of another project's label.
type Report struct {
	tool tool
	// label is the value of the label that it reports on, empty: it was removed. now is the
	// value of the report.
	label, now string
	// follows: the node has, or gets, what the label names.
	follows bool
}

// reportsOn completes the reports of a node that follows a name.
func (n Named) reportsOn(name Name) []Report {
	reports := slices.Clone(n.reports)
	for i := range reports {
		r := &reports[i]
		if r.label == "" {
			// The report of a label that was removed in the middle of a switch.
			r.follows = n.removed() && n.last.Source == r.tool.source
			continue
		}
		r.follows = !n.controlPlane && slices.ContainsFunc(n.labels, func(l Name) bool { return l.Source == r.tool.source && l.same(name) })
	}
	return reports
}

// labels are the reports that the Node should have, by the status that it is about to have.
// No report stays at pending: whatever keeps the node from its profile is a failure.
func (t *turn) labels() map[string]string {
	var labels map[string]string
	for _, r := range t.Choice.Reports {
		w := r.tool.words
		value := t.word(&r)
		unfinished := r.now == w.pending || r.now == w.rebooting
		if r.label == "" && !unfinished || value == "" && !unfinished {
			continue
		}
		if value == "" {
			value = w.failed
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[r.tool.state] = value
	}
	return labels
}

// word is the value of a report; empty while the plugin of the node has not reported.
func (t *turn) word(r *Report) string {
	w := r.tool.words
	switch {
	case t.Status.Node == nil:
		return ""
	case !r.follows, t.Choice.Keep != "", t.Status.State == v1alpha1.Failed:
		return w.failed
	case t.Status.State == v1alpha1.Rebooting:
		return w.rebooting
	case t.switching(), t.Choice.Pending != nil:
		return w.pending
	case t.desired() != nil && t.Status.Applied != nil && t.Status.Applied.Hash == t.Choice.Desired.Hash && t.keptUp():
		return w.success
	}
	return w.failed // another system serves the GPUs, or there are none
}
