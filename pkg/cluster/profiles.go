package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Profile is a PartitionProfile with its nodes. `kubectl tranche profiles -o json` prints its JSON form.
type Profile struct {
	Name string `json:"name"`
	// Missing is true if nodes name it, but it does not exist.
	Missing bool           `json:"missing,omitempty"`
	Rules   []v1beta1.Rule `json:"rules,omitempty"`
	// Desired are the nodes whose desired profile it is, Applied those that have applied it, in
	// any version.
	Desired []string `json:"desiredNodeNames,omitempty"`
	Applied []string `json:"appliedNodeNames,omitempty"`
	// Fitting are the nodes whose GPUs can have it, by their models.
	Fitting []string `json:"fittingNodeNames,omitempty"`
}

// Profiles returns the existing profiles and those that nodes name or have applied, by
// name.
func Profiles(profiles []v1beta1.PartitionProfile, nodes []v1beta1.GPUNode) []Profile {
	all := map[string]*Profile{}
	for i := range profiles {
		p := &profiles[i]
		all[p.Name] = &Profile{Name: p.Name, Rules: p.Spec.Rules}
	}
	get := func(name string) *Profile {
		if all[name] == nil {
			all[name] = &Profile{Name: name, Missing: true}
		}
		return all[name]
	}
	for i := range nodes {
		far := ProgressOf(&nodes[i])
		if far.Desired.ProfileName != "" {
			get(far.Desired.ProfileName).Desired = append(get(far.Desired.ProfileName).Desired, nodes[i].Name)
		}
		if far.Applied.ProfileName != "" {
			get(far.Applied.ProfileName).Applied = append(get(far.Applied.ProfileName).Applied, nodes[i].Name)
		}
	}
	out := make([]Profile, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		slices.Sort(p.Desired)
		slices.Sort(p.Applied)
		out = append(out, *p)
	}
	return out
}

// Says puts the rules into words: "nvidia: partitions 1g.10gb; amd: CPX NPS4".
func (p *Profile) Says() string {
	if p.Missing {
		return "it does not exist any more"
	}
	var out []string
	for i := range p.Rules {
		text := cmp.Or(strings.Join(ruleSays(&p.Rules[i]), ", "), "as it is")
		if who := selected(p.Rules[i].GPUs); who != "" {
			text = who + ": " + text
		}
		out = append(out, text)
	}
	return cmp.Or(strings.Join(out, "; "), "nothing: GPUs are partitioned on demand")
}

// selected says which GPUs a rule is for. It is empty for all.
func selected(s *v1beta1.GPUSelector) string {
	if s == nil {
		return ""
	}
	var out []string
	if s.Vendor != "" {
		out = append(out, s.Vendor)
	}
	if s.MIGSupport != "" {
		out = append(out, map[v1beta1.MIGSupport]string{v1beta1.MIGCapable: "with MIG", v1beta1.MIGIncapable: "without MIG"}[s.MIGSupport])
	}
	out = append(out, s.ProductNames...)
	out = append(out, s.PCIBusIDs...)
	out = append(out, s.PCIIDs...)
	for _, i := range s.Indexes {
		out = append(out, fmt.Sprintf("index %d", i))
	}
	text := strings.Join(out, " ")
	if s.Count != nil {
		text = fmt.Sprintf("%d × %s", *s.Count, cmp.Or(text, "any"))
	}
	return text
}

func ruleSays(r *v1beta1.Rule) []string {
	var out []string
	if r.Unchanged {
		out = append(out, "unchanged")
	}
	if r.MIG != nil {
		out = append(out, migSays(r.MIG))
	}
	if a := r.XCP; a != nil {
		if text := strings.TrimSpace(a.ComputePartition + " " + a.MemoryPartition); text != "" {
			out = append(out, text)
		}
	}
	if r.Sharing != nil {
		out = append(out, sharingSays(r.Sharing))
	}
	if e := r.ExtendedResource; e != nil {
		out = append(out, "extended resource means "+cmp.Or(e.Profile, string(e.Device)))
	}
	return out
}

func migSays(m *v1beta1.MIG) string {
	switch m.Mode {
	case v1beta1.MIGDisabled:
		return "no MIG"
	case v1beta1.MIGNoPartitions:
		return "MIG without partitions"
	case v1beta1.MIGStatic:
		var parts []string
		for _, p := range m.Partitions {
			text := p.Profile
			if p.Count != nil {
				text += fmt.Sprintf(" × %d", *p.Count)
			}
			parts = append(parts, text)
		}
		return "partitions " + cmp.Or(strings.Join(parts, " + "), "none")
	}
	text := "partitioned on demand"
	if len(m.Profiles) > 0 {
		text += " into " + strings.Join(m.Profiles, " ")
	}
	if m.WholeGPUs != nil && !*m.WholeGPUs {
		text += ", not whole"
	}
	return text
}

func sharingSays(s *v1beta1.Sharing) string {
	if s.WholeGPUs != nil && !*s.WholeGPUs {
		return "not shared"
	}
	text := "shared"
	if s.Replicas != nil {
		text += fmt.Sprintf(" by %d", *s.Replicas)
	}
	if s.Strategy != "" {
		text += " (" + string(s.Strategy) + ")"
	}
	return text
}
