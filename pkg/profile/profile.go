package profile

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile/deviceplugin"
	"github.com/tranche-dev/tranche/pkg/profile/strict"
)

// Profile is a parsed and checked profile: rules for the GPUs of a node.
type Profile struct {
	// Profile says for people where it is from: "PartitionProfile training",
	// "device-plugin config slice-10". Empty: nobody has said anything.
	Profile string
	// Notes are what of it changes nothing here, for people.
	Notes []string

	rules []rule
}

// rule is what is wanted of the GPUs that it selects.
type rule struct {
	// path is where it is in the profile, for errors.
	path string
	gpus selector
	gpu  Desired
	// mig and amd are the layout of the GPUs, checked as far as possible without a GPU.
	// Nil: the rule does not mention it.
	mig *v1alpha1.MIG
	amd *v1alpha1.AMD
}

// Unset is what holds on a node of which nobody has said anything.
func Unset() *Profile { return &Profile{} }

// fit leaves out what only the other vendor's GPUs have. A rule without a vendor
// may speak of both.
func fit(c Desired, vendor gpu.Vendor) Desired {
	c.Partitions = slices.DeleteFunc(slices.Clone(c.Partitions), func(profile string) bool { return vendorOf(profile) != vendor })
	if c.Legacy.Kind == LegacyPartition && vendorOf(c.Legacy.Profile) != vendor {
		c.Legacy = Legacy{Kind: LegacyWhole}
	}
	if vendor != gpu.NVIDIA {
		c.Strategy, c.TimeSlice, c.ExclusiveProcess = gpu.TimeSlicing, "", false
	}
	return c
}

// Parse reads a PartitionProfile. The file's name is for errors.
func Parse(file string, data []byte) (*Profile, error) {
	var p v1alpha1.PartitionProfile
	if err := strict.Decode(file, data, &p); err != nil {
		return nil, err
	}
	problems := strict.NewProblems(file)
	if want := v1alpha1.GroupVersion.String(); p.APIVersion != want {
		problems.Add("apiVersion", "is %q, it must be %s", p.APIVersion, want)
	}
	if p.Kind != v1alpha1.ProfileKind {
		problems.Add("kind", "is %q, it must be %s", p.Kind, v1alpha1.ProfileKind)
	}
	if p.Name == "" {
		problems.Add("metadata.name", "is missing")
	}
	s := &Profile{Profile: profileOrigin(p.Name), rules: rules(problems, p.Name, p.Spec.Rules)}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// FromRules reads the rules of a PartitionProfile that the API server has. The name
// is for people, empty where nothing is wanted.
func FromRules(profile string, in []v1alpha1.Rule) (*Profile, error) {
	s := &Profile{}
	if profile != "" {
		s.Profile = profileOrigin(profile)
	}
	problems := strict.NewProblems(cmp.Or(s.Profile, "no profile"))
	s.rules = rules(problems, profile, in)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

func profileOrigin(name string) string { return "PartitionProfile " + name }

// ParseDevicePlugin reads a configuration file of NVIDIA's device plugin. The
// file's name is for errors, that of the configuration for people.
func ParseDevicePlugin(file, name string, data []byte) (*Profile, error) {
	spec, notes, err := deviceplugin.Read(file, data)
	if err != nil {
		return nil, err
	}
	problems := strict.NewProblems(file)
	name = "device-plugin config " + name
	s := &Profile{Profile: name, Notes: notes, rules: rules(problems, name, spec.Rules)}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

var (
	migProfile = regexp.MustCompile(`^[1-9][0-9]*g\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?$`)
	// shortProfile leaves the memory out.
	shortProfile = regexp.MustCompile(`^[1-9][0-9]*g$`)
	// The whole GPU is no partition: spx is not among them.
	xcpProfiles = []string{"dpx", "tpx", "qpx", "cpx"}
)

// vendorOf is whose GPUs have partitions of the profile, empty where it is spelt
// like none.
func vendorOf(profile string) gpu.Vendor {
	switch {
	case migProfile.MatchString(profile):
		return gpu.NVIDIA
	case slices.Contains(xcpProfiles, profile):
		return gpu.AMD
	}
	return ""
}

// profileSpelling says how profiles are spelt, for errors.
var profileSpelling = "1g.10gb as nvidia-smi mig -lgip spells it, or " + strings.Join(xcpProfiles, ", ")
