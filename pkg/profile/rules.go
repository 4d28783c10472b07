package profile

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const (
	// MaxRules is how many rules a profile can have.
	MaxRules = 16
	// maxReplicas is the largest number of replicas: fractions are counted in thousandths.
	maxReplicas = gpu.WholeFraction
	// maxClients is the largest number of clients of a GPU, more than any GPU can run.
	maxClients = 1000
	// maxLimitPercent is the largest maxMemoryLimitPercent: a share of a hundredth can have the whole GPU.
	maxLimitPercent = 10000
)

func rules(problems *strict.Problems, profile string, in []v1beta1.Rule) []rule {
	var out []rule
	if len(in) > MaxRules {
		problems.Add("spec.rules", "has %d entries, it can have %d", len(in), MaxRules)
	}
	for i := range in {
		path := strict.Index("spec.rules", i)
		if i > 0 && out[i-1].gpus.everything() {
			problems.Add(path, "holds for no GPU, because the rule before it selects every GPU")
		}
		c := compiler{Problems: problems}
		r := rule{path: path, gpus: c.selector(strict.Key(path, "gpus"), in[i].GPUs), gpu: c.gpu(path, profile, &in[i])}
		r.mig, r.xcp = c.mig(strict.Key(path, "mig"), in[i].MIG), c.xcp(strict.Key(path, "xcp"), in[i].XCP)
		if r.unchanged = in[i].Unchanged; r.unchanged && r.mig != nil {
			c.Add(strict.Key(path, "mig"), bothChange)
		}
		if r.unchanged && r.xcp != nil {
			c.Add(strict.Key(path, "xcp"), bothChange)
		}
		c.withoutEffect(path, &in[i], r.gpu)
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
	if r.ExtendedResource != nil {
		c.extendedResource(strict.Key(path, "extendedResource"), *r.ExtendedResource, &g)
	}
	return g
}

func (c *compiler) sharing(path string, s *v1beta1.Sharing, g *Desired) {
	if s.WholeGPUs != nil {
		g.Shared = *s.WholeGPUs
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
	c.memoryLimit(strict.Key(path, "maxMemoryLimitPercent"), s.MaxMemoryLimitPercent, g)
	g.FailRequestsGreaterThanOne = s.FailRequestsGreaterThanOne
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

func (c *compiler) memoryLimit(path string, percent *int32, g *Desired) {
	switch most := ptr.Deref(percent, gpu.LimitIsRequest); {
	case most < gpu.LimitIsRequest || most > maxLimitPercent:
		c.Add(path, "is %d, it can be %d to %d", most, gpu.LimitIsRequest, maxLimitPercent)
	case most == gpu.LimitIsRequest:
	case !g.Shared:
		c.Add(path, "is for shares of whole GPUs, and wholeGPUs is false: leave it out")
	default:
		g.MaxMemoryLimitPercent = int(most)
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
	g.Partitions, g.PartitionBases = p.Profiles, c.bases(strict.Key(path, "units"), p.Units)
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
	if p.ExtendedResource == nil {
		return
	}
	switch path, device := strict.Key(strict.Key(path, "extendedResource"), "device"), p.ExtendedResource.Device; device {
	case v1beta1.MIGDevicePartition:
	case v1beta1.MIGDevicePartitionReplica:
		g.MIGReplicas = true
		if !slices.Contains(g.PartitionBases, gpu.ByFraction) {
			c.Add(path, "is PartitionReplica, a share by fraction: add Fraction to units")
		}
	default:
		c.Add(path, "is %q, it can be %s or %s", device, v1beta1.MIGDevicePartition, v1beta1.MIGDevicePartitionReplica)
	}
}

// bases are the units of shares, in the order in which they are offered.
func (c *compiler) bases(path string, units []v1beta1.ShareUnit) []gpu.Basis {
	if units != nil && len(units) == 0 {
		c.Add(path, "names nothing; leave it out")
	}
	for i, unit := range units {
		switch {
		case unit != v1beta1.ByMemory && unit != v1beta1.ByFraction:
			c.Add(strict.Index(path, i), "is %q, it can be %s or %s", unit, v1beta1.ByMemory, v1beta1.ByFraction)
		case slices.Contains(units[:i], unit):
			c.Add(strict.Index(path, i), "is %s for the second time", unit)
		}
	}
	var bases []gpu.Basis
	if len(units) == 0 || slices.Contains(units, v1beta1.ByMemory) {
		bases = append(bases, gpu.ByMemory)
	}
	if slices.Contains(units, v1beta1.ByFraction) {
		bases = append(bases, gpu.ByFraction)
	}
	return bases
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

var extendedResourceDevices = []string{string(v1beta1.DeviceGPU), string(v1beta1.DeviceGPUReplica), string(v1beta1.DevicePartition), string(v1beta1.DeviceAuto), string(v1beta1.DeviceAutoReplica)}

func (c *compiler) extendedResource(path string, r v1beta1.ExtendedResource, g *Desired) {
	g.ExtendedResource = r
	device, profile := strict.Key(path, "device"), strict.Key(path, "profile")
	switch r.Device {
	case v1beta1.DeviceGPU, v1beta1.DevicePartition, v1beta1.DeviceAuto:
	case v1beta1.DeviceGPUReplica:
		if !g.Shared {
			c.Add(device, "is GPUReplica, and sharing.wholeGPUs is false: there are no replicas")
		}
	case v1beta1.DeviceAutoReplica:
		if g.Strategy == gpu.MPS {
			c.Add(device, "is AutoReplica, and strategy MPS is for whole GPUs; use TimeSlicing, or GPUReplica")
		}
	case "":
		c.Add(device, "is missing; it can be %s", strings.Join(extendedResourceDevices, ", "))
	default:
		c.oneOf(device, string(r.Device), extendedResourceDevices)
	}
	switch vendor := vendorOf(r.Profile); {
	case (r.Profile == "") == (r.Device == v1beta1.DevicePartition):
		c.Add(profile, "is for device: Partition, which needs it")
	case r.Profile == "":
	case vendor == "":
		c.unknownProfile(profile, r.Profile)
	default:
		c.ofVendor(profile, r.Profile, vendor)
	}
}

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
