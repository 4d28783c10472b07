package formats

import (
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/strict"
)

type dcmConfig struct {
	Profiles map[string]dcmProfile `json:"gpu-config-profiles"`
	Services *dcmServices          `json:"gpuClientSystemdServices"`
}

type dcmServices struct {
	Names []string `json:"names"`
}

type dcmProfile struct {
	Skipped *dcmSkipped `json:"skippedGPUs"`
	Entries []dcmEntry  `json:"profiles"`
}

type dcmSkipped struct {
	IDs []uint32 `json:"ids"`
}

// dcmEntry is a number of GPUs in the same modes.
type dcmEntry struct {
	Compute string `json:"computePartition"`
	Memory  string `json:"memoryPartition"`
	// GPUs is the number of GPUs, zero: those that the others leave.
	GPUs *uint32 `json:"numGPUsAssigned"`
}

const (
	// amd is the vendor of all GPUs of the device config manager and Kaiwo.
	amd = "amd"
	// mostGPUs is how many GPUs a rule can count.
	mostGPUs = 64
)

var (
	computeModes = []string{"SPX", "DPX", "QPX", "CPX"}
	memoryModes  = []string{"NPS1", "NPS2", "NPS4", "NPS8"}
)

// ReadDeviceConfigManager converts the profiles of a file, in the order of their names. The notes are about the file.
func ReadDeviceConfigManager(text strict.Text) ([]Profile, []string, error) {
	var c dcmConfig
	text.AnyCase = true
	problems, err := text.Decode(&c)
	if err != nil {
		return nil, nil, err
	}
	if len(c.Profiles) == 0 {
		problems.Add("gpu-config-profiles", "names no profile")
		return nil, nil, problems.Err()
	}
	var notes []string
	if c.Services != nil && len(c.Services.Names) > 0 {
		notes = append(notes, "gpuClientSystemdServices: "+strings.Join(c.Services.Names, ", ")+
			" are not stopped while GPUs change: stop services of the host that use GPUs yourself, or run them as pods")
	}
	var profiles []Profile
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		profiles = append(profiles, p.convert(problems.New(), name))
	}
	return profiles, notes, nil
}

// convert converts a profile: the skipped GPUs, the entries with a number, the one with the rest.
func (in *dcmProfile) convert(problems *strict.Problems, name string) Profile {
	p := Profile{Original: name}
	path := strict.Key("gpu-config-profiles", name)
	var rules []v1beta1.Rule
	if ids := in.skippedIDs(problems, strict.Key(path, "skippedGPUs")); len(ids) > 0 {
		rules = append(rules, v1beta1.Rule{GPUs: &v1beta1.GPUSelector{Vendor: amd, Indexes: ids}, Unchanged: true})
	}
	path = strict.Key(path, "profiles")
	switch n := len(in.Entries); {
	case n == 0:
		problems.Add(path, "has no entry; remove the profile, or write how many GPUs have which modes")
	case n > mostEntries:
		problems.Add(path, "has %d entries, it can have %d: put entries with the same modes together", n, mostEntries)
		return p.Fail(problems.Err())
	}
	rest := -1
	for i := range in.Entries {
		e, path := &in.Entries[i], strict.Index(path, i)
		e.check(problems, path, in.Entries[0].Memory)
		counted := strict.Key(path, "numGPUsAssigned")
		switch {
		case e.GPUs != nil && *e.GPUs > mostGPUs:
			problems.Add(counted, "is %d, it can be 1 to %d", *e.GPUs, mostGPUs)
		case e.GPUs != nil && *e.GPUs > 0:
			count := int32(*e.GPUs)
			rules = append(rules, e.rule(&count))
		case rest >= 0:
			problems.Add(counted, "is missing or 0, and entry %d has the GPUs that are left: give one of them a number", rest)
		default:
			rest = i
		}
	}
	if err := problems.Err(); err != nil {
		return p.Fail(err)
	}
	last := v1beta1.Rule{GPUs: &v1beta1.GPUSelector{Vendor: amd}, Unchanged: true}
	if rest >= 0 {
		last = in.Entries[rest].rule(nil)
		if rest < len(in.Entries)-1 {
			p.Note(strict.Index(path, rest), "gets the GPUs that the others leave, which are the last ones; the device config manager takes them in the order of the entries")
		}
	}
	rules = append(rules, last)
	p.Spec.Rules = rules
	in.nameExtendedResource(p.Spec.Rules)
	for i := range p.Spec.Rules {
		// AMD's device plugin does not share GPUs.
		p.Spec.Rules[i].Sharing = off()
	}
	return p
}

// nameExtendedResource lets amd.com/gpu stand for a partition if all GPUs are in one compute mode, as
// with AMD's device plugin.
func (in *dcmProfile) nameExtendedResource(rules []v1beta1.Rule) {
	compute := in.Entries[0].Compute
	if compute == "SPX" || slices.ContainsFunc(in.Entries, func(e dcmEntry) bool { return e.Compute != compute }) {
		return
	}
	for i := range rules {
		if rules[i].XCP != nil {
			rules[i].ExtendedResource = &v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: strings.ToLower(compute)}
		}
	}
}

func (e *dcmEntry) rule(count *int32) v1beta1.Rule {
	return v1beta1.Rule{
		GPUs: &v1beta1.GPUSelector{Vendor: amd, Count: count},
		XCP:  &v1beta1.XCP{ComputePartition: e.Compute, MemoryPartition: e.Memory},
	}
}

// check refuses modes that the device config manager refuses. memory is that of the first entry.
func (e *dcmEntry) check(problems *strict.Problems, path, memory string) {
	oneOf(problems, strict.Key(path, "computePartition"), e.Compute, computeModes)
	oneOf(problems, strict.Key(path, "memoryPartition"), e.Memory, memoryModes)
	if e.Memory != memory {
		problems.Add(strict.Key(path, "memoryPartition"), "is %s, and the first entry has %s: all GPUs of a node share the memory mode", e.Memory, memory)
	}
}

func oneOf(problems *strict.Problems, path, value string, all []string) {
	switch {
	case slices.Contains(all, value):
	case value == "":
		problems.Add(path, "is missing; it can be %s", strings.Join(all, ", "))
	case slices.Contains(all, strings.ToUpper(value)):
		problems.Add(path, "is %q; did you mean %s?", value, strings.ToUpper(value))
	default:
		problems.Add(path, "is %q, it can be %s", value, strings.Join(all, ", "))
	}
}

// skippedIDs are the indexes of the GPUs that stay as they are.
func (in *dcmProfile) skippedIDs(problems *strict.Problems, path string) (ids []int32) {
	if in.Skipped == nil {
		return nil
	}
	for i, id := range in.Skipped.IDs {
		path := strict.Index(strict.Key(path, "ids"), i)
		switch {
		case id >= mostGPUs:
			problems.Add(path, "is %d, and no node has so many GPUs", id)
		case slices.Contains(ids, int32(id)):
			problems.Add(path, "is there twice")
		default:
			ids = append(ids, int32(id))
		}
	}
	return ids
}
