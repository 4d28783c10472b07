package formats

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// KaiwoDefault is the profile spx or cpx that Kaiwo creates if the device config manager has none of that
// name: all GPUs in SPX with NPS1, or in CPX with NPS4.
func KaiwoDefault(name string) (Profile, bool) {
	modes := map[string]v1beta1.XCP{
		"spx": {ComputePartition: "SPX", MemoryPartition: "NPS1"},
		"cpx": {ComputePartition: "CPX", MemoryPartition: "NPS4"},
	}
	mode, ok := modes[name]
	if !ok {
		return Profile{}, false
	}
	rule := v1beta1.Rule{GPUs: &v1beta1.GPUSelector{Vendor: amd}, XCP: &mode, Sharing: off()}
	if name == "cpx" {
		// As with AMD's device plugin.
		rule.ExtendedResource = &v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: name}
	}
	return Profile{Original: name, Spec: v1beta1.PartitionProfileSpec{Rules: []v1beta1.Rule{rule}}}, true
}

// ReadKaiwo converts an object of a kind: to commands and other notes, and to the profiles that Kaiwo
// brings, if the object needs one.
func ReadKaiwo(kind string, text strict.Text) ([]Profile, []string, error) {
	switch kind {
	case "KaiwoNode":
		return readNode(text)
	case "PartitioningProfile":
		return readProfile(text)
	case "PartitioningPlan":
		return readPlan(text)
	}
	return nil, nil, fmt.Errorf("%s: is of the kind %s, there are %v", text.File, kind, KaiwoKinds)
}

func readNode(text strict.Text) ([]Profile, []string, error) {
	var n kaiwoNode
	problems, err := text.Decode(&n)
	if err != nil {
		return nil, nil, err
	}
	want := n.Spec.Partitioning
	if !want.Enabled {
		return nil, []string{"spec.partitioning.enabled: is false: the GPUs stay as they are, so the node needs no label"}, nil
	}
	p, ok := KaiwoDefault(want.Profile)
	if !ok {
		problems.Add("spec.partitioning.profile", "is %q, it can be spx or cpx", want.Profile)
		return nil, nil, problems.Err()
	}
	p.Note("spec.partitioning.profile", "this is the profile that Kaiwo brings; if the ConfigMap of the device config manager has its own %s, convert that in place of this", want.Profile)
	return []Profile{p}, []string{fmt.Sprintf("run: kubectl label node %s %s=%s", n.Name, names.LabelProfile, want.Profile)}, nil
}

// profile is the name of the PartitionProfile, with the one that Kaiwo brings.
func (s *profileSpec) profile(problems *strict.Problems, path string) (name string, brought []Profile) {
	original := cmp.Or(s.DCMProfileName, s.ProfileName)
	path = strict.Key(path, "dcmProfileName")
	if original == "" {
		problems.Add(path, "is missing; write the name of a profile of the device config manager")
		return "", nil
	}
	name, err := ObjectName(original)
	if err != nil {
		problems.Add(path, "%v", err)
	}
	if p, ok := KaiwoDefault(original); ok {
		p.Note(path, "this is the profile that Kaiwo brings; if the ConfigMap of the device config manager has its own %s, convert that in place of this", original)
		brought = append(brought, p)
	}
	return name, brought
}

// notes say what of a profile has no counterpart.
func (s *profileSpec) notes(path, name string) (notes []string) {
	if s.TargetSelector != nil {
		notes = append(notes, strict.Key(path, "targetSelector")+": nothing checks the labels of nodes; a profile that does not fit a node's GPUs is refused")
	}
	if len(s.ExpectedResources) > 0 {
		notes = append(notes, strict.Key(path, "expectedResources")+": the GPUs are read back after a switch; nothing counts the node's resources")
	}
	if _, ok := KaiwoDefault(name); !ok && name != "" {
		notes = append(notes, fmt.Sprintf("the profile %s is in the ConfigMap of the device config manager: convert that, too", name))
	}
	return notes
}

func readProfile(text strict.Text) ([]Profile, []string, error) {
	var in partitioningProfile
	problems, err := text.Decode(&in)
	if err != nil {
		return nil, nil, err
	}
	name, brought := in.Spec.profile(problems, "spec")
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	notes := in.Spec.notes("spec", name)
	return brought, append(notes, fmt.Sprintf("run, for each node that should have it: kubectl label node NODE %s=%s", names.LabelProfile, name)), nil
}

func readPlan(text strict.Text) ([]Profile, []string, error) {
	var in partitioningPlan
	problems, err := text.Decode(&in)
	if err != nil {
		return nil, nil, err
	}
	var profiles []Profile
	var notes []string
	if in.Spec.Paused || in.Spec.DryRun {
		notes = append(notes, "spec: the plan is paused or a dry run: it changes no node until somebody starts it; the same holds for the labels")
	}
	workers := true
	if r := in.Spec.Rollout; r != nil {
		if r.MaxParallel != nil || r.MaxUnavailable != nil {
			notes = append(notes, "spec.rollout: the number of nodes that switch at a time is the chart's value controller.maxUnavailable")
		}
		workers = r.ExcludeControlPlane == nil || *r.ExcludeControlPlane
	}
	if in.Spec.Verification != nil || in.Spec.Defaults != nil {
		notes = append(notes, "spec.verification, spec.defaults: have no counterpart; the GPUs are always read back after a switch")
	}
	path, rules := "spec.rules", in.Spec.Rules
	if len(rules) == 0 {
		path, rules = "spec.partitionings", in.Spec.Partitionings
	}
	if len(rules) == 0 {
		problems.Add("spec.rules", "names no nodes")
	}
	for i := range rules {
		brought, told := rules[i].convert(problems, strict.Index(path, i), workers)
		profiles, notes = append(profiles, brought...), append(notes, told...)
	}
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	return profiles, notes, nil
}

func (r *planRule) convert(problems *strict.Problems, path string, workers bool) ([]Profile, []string) {
	selector, err := metav1.LabelSelectorAsSelector(&r.Selector)
	if err != nil {
		problems.Add(strict.Key(path, "selector"), "%v", err)
		return nil, nil
	}
	if workers {
		none, err := labels.NewRequirement("node-role.kubernetes.io/control-plane", selection.DoesNotExist, nil)
		if err == nil {
			selector = selector.Add(*none)
		}
	}
	command := func(profile string) string {
		return fmt.Sprintf("run: kubectl label nodes -l '%s' %s=%s", selector, names.LabelProfile, profile)
	}
	switch {
	case r.Profile != nil:
		path := strict.Key(path, "profile")
		name, brought := r.Profile.profile(problems, path)
		return brought, append(r.Profile.notes(path, name), command(name))
	case r.ProfileRef != nil && r.ProfileRef.Name != "":
		return nil, []string{command("PROFILE") + ", with the dcmProfileName of the PartitioningProfile " + r.ProfileRef.Name + " as PROFILE"}
	}
	problems.Add(strict.Key(path, "profile"), "is missing")
	return nil, nil
}
