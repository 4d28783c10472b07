package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const (
	// maxReplicas is the largest number of replicas: fractions are counted in thousandths.
	maxReplicas = gpu.WholeFraction
	// maxClients is the largest number of clients of a GPU, more than any GPU can run.
	maxClients = 1000
)

func rules(problems *strict.Problems, profile string, in []v1beta1.Rule) []rule {
	var out []rule
	for i := range in {
		path := strict.Index("spec.rules", i)
		if i > 0 && out[i-1].gpus.everything() {
			problems.Add(path, "holds for no GPU, because the rule before it selects every GPU")
		}
		c := compiler{Problems: problems}
		r := rule{path: path, gpus: c.selector(strict.Key(path, "gpus"), in[i].GPUs), gpu: c.gpu(path, profile, &in[i])}
		r.mig, r.amd = c.mig(strict.Key(path, "mig"), in[i].MIG), c.amd(strict.Key(path, "amd"), in[i].XCP)
		if r.unchanged = in[i].Unchanged; r.unchanged && r.mig != nil {
			c.Add(strict.Key(path, "mig"), bothChange)
		}
		if r.unchanged && r.amd != nil {
			c.Add(strict.Key(path, "amd"), bothChange)
		}
		out = append(out, r)
	}
	return out
}

const bothChange = "changes GPUs, and unchanged keeps them as they are: leave one out"

// compiler turns a rule into the desired state of a GPU.
type compiler struct {
	*strict.Problems
	// vendor is the vendor of the GPUs that the rule selects, empty for all.
	vendor gpu.Vendor
}

func (c *compiler) gpu(path, profile string, r *v1beta1.Rule) Desired {
	g := Default()
	g.Profile = profile
	if r.Sharing != nil {
		c.sharing(strict.Key(path, "sharing"), r.Sharing, &g)
	}
	c.legacy(strict.Key(path, "legacyResource"), r.ExtendedResource, &g)
	return g
}

func (c *compiler) sharing(path string, s *v1beta1.Sharing, g *Desired) {
	if s.Enabled != nil {
		g.Shared = *s.Enabled
	}
	switch s.Strategy {
	case "", v1beta1.TimeSlicing:
	case v1beta1.MPS:
		g.Strategy = gpu.MPS
		if c.vendor == gpu.AMD {
			c.Add(strict.Key(path, "strategy"), "is MPS, which AMD's GPUs do not have")
		}
	default:
		c.Add(strict.Key(path, "strategy"), "is %q, it can be %s or %s", s.Strategy, v1beta1.TimeSlicing, v1beta1.MPS)
	}
	c.numbers(path, s, g)
	c.timeSlice(strict.Key(path, "timeSlice"), gpu.TimeSlice(s.TimeSlice), g)
	g.OneClient = s.OneClient
	g.ExclusiveProcess = s.ExclusiveProcess
	if s.ExclusiveProcess && g.Strategy != gpu.MPS {
		c.Add(strict.Key(path, "exclusiveProcess"), "is for strategy MPS only")
	}
	if s.Partitions != nil {
		c.partitions(strict.Key(path, "partitions"), s.Partitions, g)
	}
}

// numbers checks replicas and maxClients.
func (c *compiler) numbers(path string, s *v1beta1.Sharing, g *Desired) {
	if n := s.Replicas; n != nil {
		g.Replicas = int(*n)
		if *n < 1 || *n > maxReplicas {
			c.Add(strict.Key(path, "replicas"), "is %d, it can be 1 to %d", *n, maxReplicas)
		}
	}
	mps := g.Strategy == gpu.MPS
	n := s.MaxClients
	switch {
	case n == nil && mps && g.Replicas > gpu.MaxMPSClients:
		c.Add(strict.Key(path, "replicas"), "is %d, and an MPS server takes %d clients", g.Replicas, gpu.MaxMPSClients)
	case n == nil:
		g.MaxClients = max(DefaultMaxClients, g.Replicas)
	case mps && *n > gpu.MaxMPSClients:
		c.Add(strict.Key(path, "maxClients"), "is %d, and an MPS server takes %d clients", *n, gpu.MaxMPSClients)
	case *n < 1 || *n > maxClients:
		c.Add(strict.Key(path, "maxClients"), "is %d, it can be 1 to %d", *n, maxClients)
	case int(*n) < g.Replicas:
		c.Add(strict.Key(path, "maxClients"), "is %d, and there are %d replicas: each takes a client", *n, g.Replicas)
	default:
		g.MaxClients = int(*n)
	}
}

func (c *compiler) timeSlice(path string, slice gpu.TimeSlice, g *Desired) {
	g.TimeSlice = slice
	switch slice {
	case "":
		return
	case gpu.DefaultSlice, gpu.ShortSlice, gpu.MediumSlice, gpu.LongSlice:
	default:
		c.Add(path, "is %q, it can be %s, %s, %s or %s", slice, gpu.DefaultSlice, gpu.ShortSlice, gpu.MediumSlice, gpu.LongSlice)
	}
	switch {
	case g.Strategy != gpu.TimeSlicing:
		c.Add(path, "is for strategy TimeSlicing only")
	case c.vendor == gpu.AMD:
		c.Add(path, "cannot be set on AMD's GPUs")
	}
}

func (c *compiler) partitions(path string, p *v1beta1.SharedPartitions, g *Desired) {
	g.Partitions, g.PartitionFractions = p.Profiles, p.Fractions
	profiles := strict.Key(path, "profiles")
	if p.Profiles == nil {
		c.Add(profiles, "is missing")
	}
	if g.Strategy == gpu.MPS {
		c.Add(path, "cannot be shared with strategy MPS, which is for whole GPUs; use TimeSlicing")
	}
	list(c, profiles, p.Profiles, func(path, profile string) {
		base, _, plus := strings.Cut(profile, "+")
		switch vendor := vendorOf(profile); {
		case vendor == "":
			c.unknownProfile(path, profile)
		case plus:
			c.Add(path, "is %s: partitions with extra engines are not shared; share those of %s", profile, base)
		default:
			c.ofVendor(path, profile, vendor)
		}
	})
	c.partitionReplicas(strict.Key(path, "replicas"), p, g)
	switch legacy := strict.Key(path, "legacyResource"); p.ExtendedResource {
	case "", v1beta1.MeansPartition:
	case v1beta1.MeansReplica:
		g.MIGReplicas = true
		if !p.Fractions {
			c.Add(legacy, "is Replica, a share by fraction: set fractions: true")
		}
	default:
		c.Add(legacy, "is %q, it can be %s or %s", p.ExtendedResource, v1beta1.MeansPartition, v1beta1.MeansReplica)
	}
}

// partitionReplicas checks the numbers of replicas of single profiles.
func (c *compiler) partitionReplicas(path string, p *v1beta1.SharedPartitions, g *Desired) {
	for i, r := range p.Replicas {
		path := strict.Index(path, i)
		_, twice := g.PartitionReplicas[r.Profile]
		switch {
		case !slices.Contains(p.Profiles, r.Profile):
			c.Add(strict.Key(path, "profile"), "is %s, which is not among profiles", r.Profile)
		case twice:
			c.Add(strict.Key(path, "profile"), "is %s for the second time", r.Profile)
		case r.Count < 1 || r.Count > maxReplicas:
			c.Add(strict.Key(path, "count"), "is %d, it can be 1 to %d", r.Count, maxReplicas)
		default:
			if g.PartitionReplicas == nil {
				g.PartitionReplicas = map[string]int{}
			}
			g.PartitionReplicas[r.Profile] = int(r.Count)
		}
	}
}

func (c *compiler) legacy(path, value string, g *Desired) {
	vendor := vendorOf(value)
	switch kind := LegacyKind(value); {
	case value == "":
		g.Legacy = Legacy{Kind: LegacyWhole}
	case slices.Contains(legacyKinds, kind):
		g.Legacy = Legacy{Kind: kind}
		if kind == LegacyReplica && !g.Shared {
			c.Add(path, "is Replica, and sharing.enabled is false: there are no replicas")
		}
		if kind == LegacyPartitionReplica && g.Strategy == gpu.MPS {
			c.Add(path, "is PartitionReplica, and strategy MPS is for whole GPUs; use TimeSlicing")
		}
	case vendor != "":
		g.Legacy = Legacy{Kind: LegacyPartition, Profile: value}
		c.ofVendor(path, value, vendor)
	case strings.EqualFold(value, "spx"):
		c.Add(path, "is %q; did you mean %s?", value, LegacyWhole)
	default:
		for _, kind := range legacyKinds {
			if strings.EqualFold(value, string(kind)) {
				c.Add(path, "is %q; did you mean %s?", value, kind)
				return
			}
		}
		c.Add(path, "is %q, it can be %s, %s, %s, %s or a profile: %s", value, LegacyWhole, LegacyReplica, LegacyPartition, LegacyPartitionReplica, profileSpelling)
	}
}

// legacyKinds are the kinds that rules name.
var legacyKinds = []LegacyKind{LegacyWhole, LegacyReplica, LegacyPartition, LegacyPartitionReplica}

func (c *compiler) unknownProfile(path, profile string) {
	if lower := strings.ToLower(profile); vendorOf(lower) != "" {
		c.Add(path, "is %q; did you mean %s?", profile, lower)
		return
	}
	c.Add(path, "is %q, which is not a profile: they are spelt %s", profile, profileSpelling)
}

// ofVendor refuses profiles of a vendor whose GPUs the rule does not select.
func (c *compiler) ofVendor(path, profile string, vendor gpu.Vendor) {
	if c.vendor != "" && vendor != c.vendor {
		c.Add(path, "is %s, a profile of %s's GPUs, and the rule is for those of %s", profile, vendor.Title(), c.vendor.Title())
	}
}
