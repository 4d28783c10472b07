package profile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Hash identifies the content of a profile: its name, and its rules in their order. It does not
// depend on the order of keys, names and static partitions, on the spelling of product names, PCI
// addresses and numbers, or on whether defaults are written. A rule with mig differs from one
// without, because it may enable MIG mode.
func Hash(profile string, rules []v1beta1.Rule) string {
	canonical := struct {
		Version int            `json:"version"`
		Profile string         `json:"profile"`
		Rules   []v1beta1.Rule `json:"rules"`
	}{Version: 1, Profile: profile, Rules: make([]v1beta1.Rule, len(rules))}
	for i := range rules {
		canonical.Rules[i] = canonicalRule(rules[i].DeepCopy())
	}
	data, err := json.Marshal(canonical)
	if err != nil {
		panic("profile: encode rules: " + err.Error()) // cannot happen: all types can be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// canonicalRule normalizes a rule for the hash, in place.
func canonicalRule(r *v1beta1.Rule) v1beta1.Rule {
	r.GPUs = canonicalGPUs(r.GPUs)
	if m := r.MIG; m != nil {
		m.Mode = cmp.Or(m.Mode, v1beta1.MIGDynamic)
		slices.Sort(m.Profiles)
		if m.WholeGPUs != nil && *m.WholeGPUs {
			m.WholeGPUs = nil
		}
		slices.SortFunc(m.Partitions, func(a, b v1beta1.StaticPartition) int {
			return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(count(a), count(b)))
		})
	}
	if r.XCP != nil && *r.XCP == (v1beta1.XCP{}) {
		r.XCP = nil
	}
	r.Sharing = canonicalSharing(r.Sharing)
	if r.ExtendedResource != nil && r.ExtendedResource.As == v1beta1.AsWhole {
		r.ExtendedResource = nil
	}
	return *r
}

func count(p v1beta1.StaticPartition) int32 {
	if p.Count == nil {
		return 0
	}
	return *p.Count
}

func canonicalGPUs(c *v1beta1.GPUSelector) *v1beta1.GPUSelector {
	if c == nil {
		return &v1beta1.GPUSelector{}
	}
	for i := range c.Products {
		c.Products[i] = strings.ToLower(c.Products[i])
	}
	for i, address := range c.PCIAddresses {
		if normal, err := gpu.NormalizePCIAddress(address); err == nil {
			c.PCIAddresses[i] = normal
		}
	}
	for i := range c.PCIIDs {
		c.PCIIDs[i] = normalizeID(c.PCIIDs[i])
	}
	slices.Sort(c.Products)
	slices.Sort(c.PCIAddresses)
	slices.Sort(c.PCIIDs)
	slices.Sort(c.Indexes)
	return c
}

// canonicalSharing fills in all defaults.
func canonicalSharing(s *v1beta1.Sharing) *v1beta1.Sharing {
	if s == nil {
		s = &v1beta1.Sharing{}
	}
	def := Default()
	if s.Enabled == nil {
		s.Enabled = &def.Shared
	}
	s.Strategy = cmp.Or(s.Strategy, v1beta1.Strategy(def.Strategy))
	if s.Replicas == nil {
		n := int32(DefaultReplicas)
		s.Replicas = &n
	}
	if s.MaxClients == nil {
		n := max(DefaultMaxClients, *s.Replicas)
		s.MaxClients = &n
	}
	if s.Partitions != nil {
		slices.Sort(s.Partitions.Profiles)
		slices.SortFunc(s.Partitions.Replicas, func(a, b v1beta1.PartitionReplicas) int { return cmp.Compare(a.Profile, b.Profile) })
		slices.Sort(s.Partitions.Units)
		if slices.Equal(s.Partitions.Units, []v1beta1.ShareUnit{v1beta1.ByMemory}) {
			s.Partitions.Units = nil
		}
		if r := s.Partitions.ExtendedResource; r != nil && r.As == v1beta1.MIGAsPartition {
			s.Partitions.ExtendedResource = nil
		}
	}
	return s
}
