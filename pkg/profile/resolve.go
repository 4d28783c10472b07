package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Resolve returns the desired state of each GPU of a node, by PCI address: by the first rule that
// selects the GPU, otherwise the defaults. there returns what exists on a GPU; it can be nil.
//
// GPUs that cannot be read should be among gpus as they were last known: otherwise a rule that
// counts GPUs selects others.
//
// The error names everything that does not fit: rule, GPUs, and what would fit.
func (s *Profile) Resolve(gpus []gpu.GPU, there func(pciAddress string) Existing) (map[string]Desired, error) {
	gpus = slices.Clone(gpus)
	gpu.SortGPUs(gpus)
	r := resolver{there: there, told: map[problem][]string{}}
	if r.there == nil {
		r.there = func(string) Existing { return Existing{} }
	}
	selected := r.choose(s.rules, gpus)
	memory := r.memoryMode(gpus, selected)
	resolved := make(map[string]Desired, len(gpus))
	for i := range gpus {
		resolved[gpus[i].PCIAddress] = r.gpu(&gpus[i], selected[i], memory)
	}
	r.onePerNode(gpus, selected, resolved)
	if err := r.err(cmp.Or(s.Profile, "no profile")); err != nil {
		return nil, err
	}
	return resolved, nil
}

// Fits reports whether GPUs can have the profile, and it says what at least one of them has. A profile without rules
// fits all.
func (s *Profile) Fits(gpus []gpu.GPU) bool {
	if _, err := s.Resolve(gpus, nil); err != nil {
		return false
	}
	r := resolver{told: map[problem][]string{}}
	gpus = slices.Clone(gpus)
	gpu.SortGPUs(gpus)
	return len(s.rules) == 0 || slices.ContainsFunc(r.choose(s.rules, gpus), func(chosen *rule) bool { return chosen != nil && !chosen.unchanged })
}

// Existing is what exists on a GPU.
type Existing struct {
	// Partitions keep their positions if possible.
	Partitions []gpu.Partition
	// Layout is the current layout, which the GPU keeps if its rule says unchanged.
	Layout Layout
}

type resolver struct {
	there func(pciAddress string) Existing
	// told has the names of the GPUs of each problem, in PCI order. order has the problems in
	// the order in which they were found.
	told  map[problem][]string
	order []problem
}

type problem struct{ path, text string }

// add records what does not fit, for a GPU or for none. GPUs with the same problem are reported
// together.
func (r *resolver) add(path string, g *gpu.GPU, format string, args ...any) {
	p := problem{path, fmt.Sprintf(format, args...)}
	if _, known := r.told[p]; !known {
		r.order = append(r.order, p)
		r.told[p] = nil
	}
	if g != nil {
		r.told[p] = append(r.told[p], g.Name())
	}
}

// mostGPUs is how many GPUs are named for one problem.
const mostGPUs = 4

func (r *resolver) err(profile string) error {
	problems := strict.NewProblems(profile)
	for _, p := range r.order {
		problem := p.text
		switch gpus := r.told[p]; {
		case len(gpus) == 1:
			problem = "GPU " + gpus[0] + ": " + problem
		case len(gpus) > 1:
			problem = "GPUs " + text.List(gpus, mostGPUs) + ": " + problem
		}
		problems.Add(p.path, "%s", problem)
	}
	return problems.Err()
}

// choose returns the rule of each GPU, nil for the defaults.
func (r *resolver) choose(rules []rule, gpus []gpu.GPU) []*rule {
	selected := make([]*rule, len(gpus))
	for i := range rules {
		rule := &rules[i]
		taken := 0
		for j := range gpus {
			if full := rule.gpus.count > 0 && taken == rule.gpus.count; !full && selected[j] == nil && rule.gpus.selects(&gpus[j]) {
				selected[j] = rule
				taken++
			}
		}
		if taken < rule.gpus.count {
			r.add(strict.Key(strict.Key(rule.path, "gpus"), "count"), nil,
				"is %d, and the node has %d GPUs that fit and that no earlier rule takes", rule.gpus.count, taken)
		}
	}
	return selected
}

// memoryMode is the memory mode for all AMD GPUs of the node, with the rule that sets it; empty
// if none does.
func (r *resolver) memoryMode(gpus []gpu.GPU, selected []*rule) memoryChoice {
	var choice memoryChoice
	for i := range gpus {
		rule := selected[i]
		if gpus[i].Vendor != gpu.AMD || rule == nil || rule.xcp == nil || rule.xcp.MemoryPartition == "" {
			continue
		}
		path := strict.Key(strict.Key(rule.path, "xcp"), "memoryPartition")
		switch {
		case choice.mode == "":
			choice = memoryChoice{mode: rule.xcp.MemoryPartition, path: path}
		case choice.mode != rule.xcp.MemoryPartition:
			r.add(path, nil, "is %s, and %s is %s: all AMD GPUs of a node share the memory mode", rule.xcp.MemoryPartition, choice.path, choice.mode)
		}
	}
	return choice
}

type memoryChoice struct{ mode, path string }

// gpu returns the desired state of one GPU.
func (r *resolver) gpu(g *gpu.GPU, rule *rule, memory memoryChoice) Desired {
	resolved := Default()
	if rule != nil {
		resolved = fit(rule.gpu, g.Vendor)
	}
	switch {
	case rule != nil && rule.unchanged:
		resolved.Layout, resolved.Unchanged = r.unchanged(g, memory), true
	case g.Vendor == gpu.NVIDIA:
		if rule != nil && rule.mig != nil {
			resolved.Layout = r.mig(g, strict.Key(rule.path, "mig"), rule.mig)
		}
	case g.Vendor == gpu.AMD:
		resolved.Layout = r.xcp(g, rule, memory)
	}
	// Of a layout that does not fit, nothing is offered.
	unfit := rule != nil && rule.mig != nil && (rule.mig.Mode == v1beta1.MIGStatic && resolved.Layout.Static == nil || rule.mig.Profiles != nil && resolved.Layout.Profiles == nil)
	if rule != nil && !unfit {
		r.extendedResource(g, strict.Key(rule.path, "extendedResource"), resolved)
	}
	return resolved
}

// unchanged is the current layout of a GPU. The memory mode can only be the current one.
func (r *resolver) unchanged(g *gpu.GPU, memory memoryChoice) Layout {
	s := r.there(g.PCIAddress).Layout
	if memory.mode == "" || len(g.Modes) == 0 {
		return s
	}
	if now := cmp.Or(s.Memory, g.MemoryMode); now != memory.mode {
		r.add(memory.path, g, "is %s, and another rule leaves GPUs unchanged, which are in %s: all AMD GPUs of a node share the memory mode", memory.mode, now)
	}
	s.Memory = memory.mode
	return s
}

func (r *resolver) mig(g *gpu.GPU, path string, m *v1beta1.MIG) Layout {
	var s Layout
	capable := len(MIGProfiles(g)) > 0
	restricted := m.Mode == v1beta1.MIGStatic || m.Mode == v1beta1.MIGNoPartitions || m.Profiles != nil || m.WholeGPUs != nil && !*m.WholeGPUs
	switch {
	case !capable && restricted:
		r.add(path, g, "%s does not support MIG: put a rule for it before this one, or select other GPUs", cmp.Or(g.ProductName, "it"))
	case !capable:
	case m.Mode == v1beta1.MIGDisabled:
		s.Partitioning = PartitioningOff
	case m.Mode == v1beta1.MIGNoPartitions:
		s.Partitioning = PartitioningStatic
	case m.Mode == v1beta1.MIGStatic:
		s.Partitioning = PartitioningStatic
		s.Static = r.layout(g, strict.Key(path, "partitions"), m.Partitions)
	default:
		s.Named = true
		s.NoWhole = m.WholeGPUs != nil && !*m.WholeGPUs
		s.Profiles = r.profiles(g, strict.Key(path, "profiles"), m.Profiles)
	}
	return s
}

// profiles are the full names of profiles of a GPU, in its order.
func (r *resolver) profiles(g *gpu.GPU, path string, names []string) []string {
	var full []string
	for i, name := range names {
		profile, err := fullProfile(g, name)
		if err != nil {
			r.add(strict.Index(path, i), g, "%s", err)
			continue
		}
		full = append(full, profile)
	}
	all := MIGProfiles(g)
	slices.SortFunc(full, func(a, b string) int { return cmp.Compare(slices.Index(all, a), slices.Index(all, b)) })
	return slices.Compact(full)
}

func (r *resolver) layout(g *gpu.GPU, path string, partitions []v1beta1.StaticPartition) []gpu.Placement {
	found, err := pack(g, asParts(partitions), r.there(g.PCIAddress).Partitions)
	if err != nil {
		r.add(path, g, "%s", err)
	}
	return found
}

func asParts(partitions []v1beta1.StaticPartition) []part {
	parts := make([]part, len(partitions))
	for i, p := range partitions {
		parts[i] = part{Profile: p.Profile}
		if p.Count != nil {
			parts[i].Count = int(*p.Count)
		}
	}
	return parts
}

func (r *resolver) xcp(g *gpu.GPU, rule *rule, memory memoryChoice) Layout {
	var wanted v1beta1.XCP
	path := ""
	if rule != nil && rule.xcp != nil {
		wanted, path = *rule.xcp, strict.Key(rule.path, "xcp")
	}
	compute := strict.Key(path, "computePartition")
	if len(g.Modes) == 0 {
		switch {
		case wanted.ComputePartition != "" && wanted.ComputePartition != wholeMode:
			r.add(compute, g, "is %s, and %s cannot be partitioned", wanted.ComputePartition, cmp.Or(g.ProductName, "it"))
		case wanted.MemoryPartition != "":
			r.add(strict.Key(path, "memoryPartition"), g, "is %s, and %s has no memory modes", wanted.MemoryPartition, cmp.Or(g.ProductName, "it"))
		}
		return Layout{}
	}
	s := Layout{Compute: wanted.ComputePartition, Memory: memory.mode}
	mode := cmp.Or(s.Memory, g.MemoryMode)
	legal, has := g.Modes[mode]
	switch {
	case !has && wanted.MemoryPartition == s.Memory:
		r.add(memory.path, g, "is %s, which the GPU does not have; it has %s", s.Memory, strings.Join(slices.Sorted(maps.Keys(g.Modes)), ", "))
	case !has:
		r.add(memory.path, g, "is %s, all AMD GPUs of a node share the memory mode, and this one has %s", s.Memory, strings.Join(slices.Sorted(maps.Keys(g.Modes)), ", "))
	case s.Compute != "" && !slices.Contains(legal, s.Compute):
		r.add(compute, g, "is %s, which does not go with memory mode %s; %s", s.Compute, mode, instead(g, s.Compute, legal))
	}
	return s
}

// instead names alternatives: other compute modes, or other memory modes.
func instead(g *gpu.GPU, compute string, legal []string) string {
	text := strings.Join(legal, ", ") + " do"
	if len(legal) == 1 {
		text = legal[0] + " does"
	}
	memory := lists.Filter(slices.Sorted(maps.Keys(g.Modes)), func(m string) bool { return slices.Contains(g.Modes[m], compute) })
	if len(memory) == 0 {
		return text + ", and the GPU has no " + compute
	}
	return text + ", or set memoryPartition to " + strings.Join(memory, " or ")
}
