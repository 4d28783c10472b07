package formats

import (
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// nvidia is the vendor of all GPUs of mig-parted, the device plugin and nos.
const nvidia = "nvidia"

// version is that of the files of mig-parted and the device plugin.
const version = "v1"

type migConfig struct {
	Version    string                `json:"version"`
	MIGConfigs map[string][]migEntry `json:"mig-configs"`
}

type migEntry struct {
	// DeviceFilter is a text or a list of them.
	DeviceFilter any `json:"device-filter"`
	// Devices is "all" or a list of indexes.
	Devices    any            `json:"devices"`
	MIGEnabled *bool          `json:"mig-enabled"`
	MIGDevices map[string]int `json:"mig-devices"`
}

// ReadMIGParted converts the configurations of a file, in the order of their names. The error is that of a
// file which mig-parted refuses as a whole, or would misread; a single configuration that cannot be
// converted has its own.
func ReadMIGParted(text strict.Text) ([]Profile, error) {
	var c migConfig
	problems, err := text.Decode(&c)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Version == "":
		problems.Add("version", "is missing; write version: %s", version)
	case c.Version != version:
		problems.Add("version", "is %q, and %s is what can be read", c.Version, version)
	}
	if len(c.MIGConfigs) == 0 {
		problems.Add("mig-configs", "names no configuration")
	}
	names := slices.Sorted(maps.Keys(c.MIGConfigs))
	for _, name := range names {
		checkEntries(problems, strict.Key("mig-configs", name), c.MIGConfigs[name])
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return lists.Map(names, func(name string) Profile { return convertEntries(problems.New(), name, c.MIGConfigs[name]) }), nil
}

// checkEntries refuses what mig-parted refuses.
func checkEntries(problems *strict.Problems, path string, entries []migEntry) {
	if len(entries) == 0 {
		problems.Add(path, "has no entries; write - devices: all")
	}
	for i := range entries {
		e, path := &entries[i], strict.Index(path, i)
		switch {
		case e.MIGEnabled == nil:
			problems.Add(strict.Key(path, "mig-enabled"), "is missing; write true or false")
		case *e.MIGEnabled && e.MIGDevices == nil:
			problems.Add(strict.Key(path, "mig-devices"), "is missing, and mig-enabled is true; write {} for MIG mode without partitions")
		case !*e.MIGEnabled && len(e.MIGDevices) > 0:
			problems.Add(strict.Key(path, "mig-devices"), "names partitions, and mig-enabled is false; set it to true, or remove the partitions")
		}
	}
}

// mostEntries leaves three rules of a PartitionProfile for GPUs that are skipped, the other GPUs, and
// the sharing of NVIDIA's.
const mostEntries = profile.MaxRules - 3

// convertEntries converts a configuration: its entries in reverse, because the last one holds, and the
// GPUs that none selects are left as they are.
func convertEntries(problems *strict.Problems, name string, entries []migEntry) Profile {
	p := Profile{Original: name}
	path := strict.Key("mig-configs", name)
	if len(entries) > mostEntries {
		problems.Add(path, "has %d entries, it can have %d: put entries for the same partitions together", len(entries), mostEntries)
		return p.Fail(problems.Err())
	}
	all := make([]selected, len(entries))
	rules := make([]v1beta1.Rule, len(entries))
	for i := range entries {
		path := strict.Index(path, i)
		all[i] = selectionOf(problems, path, &entries[i])
		rules[i] = v1beta1.Rule{
			GPUs:    all[i].selector(),
			MIG:     migOf(problems, strict.Key(path, "mig-devices"), &entries[i]),
			Sharing: off(),
		}
	}
	for j := range entries {
		for i := range j {
			conflict(problems, &p, path, i, j, entries, all)
		}
	}
	if err := problems.Err(); err != nil {
		return p.Fail(err)
	}
	nameSinglePartition(rules)
	for i := len(rules) - 1; i >= 0; i-- {
		if all[i].none() {
			p.Note(strict.Key(strict.Index(path, i), "devices"), "names no GPU, so the entry has no effect, nor with mig-parted")
			continue
		}
		p.Spec.Rules = append(p.Spec.Rules, rules[i])
	}
	p.Spec.Rules = append(p.Spec.Rules, v1beta1.Rule{
		GPUs:      &v1beta1.GPUSelector{Vendor: nvidia},
		Unchanged: true,
		Sharing:   off(),
	})
	return p
}

// nameSinglePartition lets nvidia.com/gpu stand for a partition if all GPUs have partitions of one
// profile, as with the device plugin's strategy single, the default of the GPU operator.
func nameSinglePartition(rules []v1beta1.Rule) {
	for i := range rules {
		m := rules[i].MIG
		if len(m.Partitions) != 1 || m.Partitions[0].Profile != rules[0].MIG.Partitions[0].Profile {
			return
		}
	}
	for i := range rules {
		rules[i].ExtendedResource = &v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: rules[i].MIG.Partitions[0].Profile}
	}
}

// conflict refuses two entries with different MIG modes for one GPU, on which mig-parted fails. If
// only some nodes have such a GPU, it is a note.
func conflict(problems *strict.Problems, p *Profile, path string, i, j int, entries []migEntry, all []selected) {
	if *entries[i].MIGEnabled == *entries[j].MIGEnabled {
		return
	}
	path = strict.Key(strict.Index(path, j), "mig-enabled")
	switch all[i].overlap(&all[j]) {
	case always:
		problems.Add(path, "is %t, and entry %d has %t for the same GPUs: mig-parted fails there; give each GPU one mode", *entries[j].MIGEnabled, i, *entries[i].MIGEnabled)
	case sometimes:
		p.Note(path, "is %t, and entry %d has %t: on a GPU that both select, this one holds; mig-parted fails there", *entries[j].MIGEnabled, i, *entries[i].MIGEnabled)
	}
}
