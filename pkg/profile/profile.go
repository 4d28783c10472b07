package profile

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// Profile is a parsed and checked profile: rules for the GPUs of a node.
type Profile struct {
	// Profile names the source in messages: "PartitionProfile training". Empty: there is none.
	Profile string

	rules []rule
}

type rule struct {
	// path is the path of the rule in the profile, for errors.
	path string
	gpus selector
	gpu  Desired
	// mig and xcp are the layout of the GPUs, checked as far as possible without a GPU.
	// Nil: the rule does not mention it.
	mig *v1beta1.MIG
	xcp *v1beta1.XCP
	// unchanged: the GPUs keep their layout.
	unchanged bool
}

// Unset is the profile of a node without any.
func Unset() *Profile { return &Profile{} }

// fit removes what GPUs of the vendor do not have. A rule without a vendor can have settings
// for both.
func fit(c Desired, vendor gpu.Vendor) Desired {
	c.Partitions = slices.DeleteFunc(slices.Clone(c.Partitions), func(profile string) bool { return vendorOf(profile) != vendor })
	if c.ExtendedResource.Profile != "" && vendorOf(c.ExtendedResource.Profile) != vendor {
		c.ExtendedResource = v1beta1.ExtendedResource{Device: v1beta1.DeviceGPU}
	}
	if vendor != gpu.NVIDIA {
		c.Strategy, c.TimeSlice, c.ExclusiveProcess = gpu.TimeSlicing, "", false
	}
	return c
}

// Parse reads a PartitionProfile. The file's name is for errors.
func Parse(file string, data []byte) (*Profile, error) {
	var p v1beta1.PartitionProfile
	if err := strict.Decode(file, data, &p); err != nil {
		return nil, err
	}
	problems := strict.NewProblems(file)
	if want := v1beta1.GroupVersion.String(); p.APIVersion != want {
		problems.Add("apiVersion", "is %q, it must be %s", p.APIVersion, want)
	}
	if p.Kind != v1beta1.ProfileKind {
		problems.Add("kind", "is %q, it must be %s", p.Kind, v1beta1.ProfileKind)
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

// FromRules parses the rules of a PartitionProfile. The name is for errors, empty if there is no
// profile.
func FromRules(profile string, in []v1beta1.Rule) (*Profile, error) {
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

var (
	migProfile = regexp.MustCompile(`^[1-9][0-9]*g\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?$`)
	// shortProfile leaves the memory out.
	shortProfile = regexp.MustCompile(`^[1-9][0-9]*g$`)
	// The whole GPU (spx) is not a partition.
	xcpProfiles = []string{"dpx", "tpx", "qpx", "cpx"}
)

// vendorOf is the vendor whose GPUs have the profile, empty if it is not spelt like a profile.
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
