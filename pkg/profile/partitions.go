package profile

import (
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// maxPartitions is how many partitions of one profile an entry can ask for. No GPU
// has more than seven.
const maxPartitions = 16

var (
	computeModes = []string{"SPX", "DPX", "TPX", "QPX", "CPX"}
	memoryModes  = []string{"NPS1", "NPS2", "NPS4", "NPS8"}
)

// mig checks the MIG settings of a rule, as far as possible without a GPU.
func (c *compiler) mig(path string, m *v1beta1.MIG) *v1beta1.MIG {
	if m == nil {
		return nil
	}
	if c.vendor == gpu.AMD {
		c.Add(path, "is for NVIDIA's GPUs, and the rule is for those of AMD; use xcp.computePartition")
	}
	static := false
	switch m.Mode {
	case v1beta1.MIGStatic:
		static = true
		if len(m.Partitions) == 0 {
			c.Add(strict.Key(path, "partitions"), "is missing: mode Static makes the partitions that it names")
		}
	case "", v1beta1.MIGDynamic, v1beta1.MIGNoPartitions, v1beta1.MIGDisabled:
	default:
		c.Add(strict.Key(path, "mode"), "is %q, it can be %s, %s, %s or %s", m.Mode, v1beta1.MIGDynamic, v1beta1.MIGStatic, v1beta1.MIGNoPartitions, v1beta1.MIGDisabled)
		return m
	}
	if m.Partitions != nil && !static {
		c.Add(strict.Key(path, "partitions"), "is for mode Static only; for Dynamic use profiles")
	}
	if dynamic := m.Mode == "" || m.Mode == v1beta1.MIGDynamic; !dynamic {
		if m.Profiles != nil {
			c.Add(strict.Key(path, "profiles"), "is for mode Dynamic only")
		}
		if m.WholeGPUs != nil {
			c.Add(strict.Key(path, "wholeGPUs"), "is for mode Dynamic only")
		}
	}
	list(c, strict.Key(path, "profiles"), m.Profiles, c.migProfile)
	c.staticPartitions(strict.Key(path, "partitions"), m.Partitions)
	return m
}

func (c *compiler) staticPartitions(path string, all []v1beta1.StaticPartition) {
	seen, rest := map[string]bool{}, ""
	for i, p := range all {
		path := strict.Index(path, i)
		profile := strict.Key(path, "profile")
		if c.migProfile(profile, p.Profile); seen[p.Profile] {
			c.Add(profile, "is %s for the second time; put them together", p.Profile)
		}
		seen[p.Profile] = true
		switch {
		case p.Count == nil && rest != "":
			c.Add(strict.Key(path, "count"), "is missing: one profile can fill what is left, and %s does", rest)
		case p.Count == nil:
			rest = p.Profile
		case *p.Count < 1 || *p.Count > maxPartitions:
			c.Add(strict.Key(path, "count"), "is %d, it can be 1 to %d", *p.Count, maxPartitions)
		}
	}
}

func (c *compiler) migProfile(path, profile string) {
	lower := strings.ToLower(profile)
	switch {
	case migProfile.MatchString(profile), shortProfile.MatchString(profile):
	case migProfile.MatchString(lower), shortProfile.MatchString(lower):
		c.Add(path, "is %q; did you mean %s?", profile, lower)
	default:
		c.Add(path, "is %q, which is no MIG profile: they are spelt 1g.10gb as nvidia-smi mig -lgip does, or 1g", profile)
	}
}

// xcp checks the AMD settings of a rule, as far as possible without a GPU.
func (c *compiler) xcp(path string, a *v1beta1.XCP) *v1beta1.XCP {
	if a == nil {
		return nil
	}
	if c.vendor == gpu.NVIDIA {
		c.Add(path, "is for AMD's GPUs, and the rule is for those of NVIDIA; use mig")
	}
	c.oneOf(strict.Key(path, "computePartition"), a.ComputePartition, computeModes)
	c.oneOf(strict.Key(path, "memoryPartition"), a.MemoryPartition, memoryModes)
	return a
}

// oneOf refuses a value that is set and not among the allowed ones.
func (c *compiler) oneOf(path, value string, all []string) {
	if value == "" {
		return
	}
	for _, v := range all {
		switch {
		case value == v:
			return
		case strings.EqualFold(value, v):
			c.Add(path, "is %q; did you mean %s?", value, v)
			return
		}
	}
	c.Add(path, "is %q, it can be %s", value, strings.Join(all, ", "))
}
