package formats_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/test/golden"
)

// What becomes of each file of testdata is in the file beside it.
func TestReadMIGParted(t *testing.T) {
	golden.Files(t, "testdata/migparted/*.yaml", func(t *testing.T, name string, data []byte) string {
		profiles, err := formats.ReadMIGParted(strict.Text{File: name, Data: data})
		require.NoError(t, err)
		var got strings.Builder
		for _, p := range profiles {
			text, err := yaml.Marshal(map[string]any{"name": p.Original, "error": message(p.Err), "notes": p.Notes, "spec": p.Spec})
			require.NoError(t, err)
			got.WriteString("---\n" + string(text))
		}
		return got.String()
	})
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Files that are refused as a whole.
func TestMIGPartedRefused(t *testing.T) {
	for name, tt := range map[string]struct{ document, want string }{
		"no version":      {"mig-configs: {a: [{devices: all, mig-enabled: false}]}", "f: version: is missing; write version: v1"},
		"another version": {"version: v1alpha1\nmig-configs: {a: [{devices: all, mig-enabled: false}]}", `f: version: is "v1alpha1", and v1 is what can be read (line 1)`},
		"nothing":         {"version: v1", "f: mig-configs: names no configuration"},
		"no entry":        {"version: v1\nmig-configs:\n  a: []\n", "f: mig-configs.a: has no entries; write - devices: all (line 3)"},
		"unknown key":     {"version: v1\nmig-configs:\n  a:\n  - devices: all\n    mig-enable: true\n", "f: mig-configs.a[0].mig-enable: unknown key; did you mean mig-enabled? (line 5)"},
		"key twice":       {"version: v1\nmig-configs:\n  a: [{devices: all, mig-enabled: false}]\n  a: [{devices: all, mig-enabled: false}]\n", "f: mig-configs.a: duplicate key (line 3)"},
		"no mode":         {"version: v1\nmig-configs: {a: [{devices: all}]}", "f: mig-configs.a[0].mig-enabled: is missing; write true or false"},
		"no partitions": {"version: v1\nmig-configs:\n  all-enabled:\n  - devices: all\n    mig-enabled: true\n    mig-devices:\n",
			"f: mig-configs.all-enabled[0].mig-devices: is missing, and mig-enabled is true; write {} for MIG mode without partitions (line 6)"},
		"partitions of a GPU without MIG": {"version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 7}}]}",
			"f: mig-configs.a[0].mig-devices: names partitions, and mig-enabled is false"},
		"count as a text": {"version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: '7'}}]}", `mig-devices.1g.5gb: must be a whole number, not "7"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := formats.ReadMIGParted(strict.Text{File: "f", Data: []byte(tt.document)})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// Configurations that are refused; the others of the file are not.
func TestConfigurationsRefused(t *testing.T) {
	const one = "mig-enabled: true, mig-devices: {1g.10gb: 7}"
	for name, tt := range map[string]struct{ entries, want string }{
		"no devices":        {"{" + one + "}", "mig-configs.bad[0].devices: is missing; write all, or a list"},
		"a bare number":     {"{devices: 0, " + one + "}", "mig-configs.bad[0].devices: is 0, it must be a list: write [0]"},
		"a word":            {"{devices: every, " + one + "}", `mig-configs.bad[0].devices: is "every"; write all`},
		"an object":         {"{devices: {a: 1}, " + one + "}", `mig-configs.bad[0].devices: is map[a:1]; write all`},
		"a negative index":  {"{devices: [0, -1], " + one + "}", "mig-configs.bad[0].devices[1]: is -1, it must be the index of a GPU"},
		"half an index":     {"{devices: [0.5], " + one + "}", "devices[0]: is 0.5, it must be the index of a GPU"},
		"a text for one":    {`{devices: ["0"], ` + one + "}", "devices[0]: is 0, it must be the index of a GPU"},
		"a huge index":      {"{devices: [1e30], " + one + "}", "it must be the index of a GPU"},
		"a filter":          {"{devices: all, device-filter: H100, " + one + "}", `device-filter: is "H100", which is not a filter, and mig-parted would select no GPU: write device and vendor like 0x233010DE`},
		"an empty filter":   {"{devices: all, device-filter: [0x233010DE, ''], " + one + "}", `device-filter[0]: must be a string like "0x233010DE", not 590352606`},
		"an ID of three":    {`{devices: all, device-filter: "0x233010DE:0x16C110DE:1", ` + one + "}", "which is not a filter"},
		"only the device":   {`{devices: all, device-filter: "0x2330", ` + one + "}", `device-filter: is "0x2330", and the last four digits are not 10DE`},
		"vendor and device": {`{devices: all, device-filter: ["0x10DE2330"], ` + one + "}", `device-filter[0]: is "0x10DE2330", and the last four digits are not 10DE`},
		"too long an ID":    {`{devices: all, device-filter: "0x1233010DE", ` + one + "}", "which is not a filter"},
		"number as filter":  {`{devices: all, device-filter: 0x233010DE, ` + one + "}", "device-filter: must be a string"},
		"compute instances": {"{devices: all, mig-enabled: true, mig-devices: {1c.3g.20gb: 6}}", `mig-devices.1c.3g.20gb: is a compute instance, a part of a partition, and those are not created: write 3g.20gb, and share`},
		"too many entries":  {strings.Repeat("{devices: [0], "+one+"},", 14), "mig-configs.bad: has 14 entries, it can have 13: put entries for the same partitions together"},
		"one in two ways":   {"{devices: all, mig-enabled: true, mig-devices: {7c.7g.80gb: 1, 7g.80gb: 16}}", "is 7g.80gb, which is there already; put them together"},
		"attributes":        {`{devices: all, mig-enabled: true, mig-devices: {"1g.5gb+me,gfx": 1}}`, "has the attributes +me,gfx, which no MIG profile has"},
		"a dot for a plus":  {"{devices: all, mig-enabled: true, mig-devices: {1g.5gb.me: 1}}", "is no MIG profile: they are spelt 1g.10gb or 1g.10gb+me"},
		"capital letters":   {"{devices: all, mig-enabled: true, mig-devices: {1G.10GB: 1}}", "is no MIG profile"},
		"only zeros":        {"{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 0}}", "mig-devices: has no partition; write {} for"},
		"a negative count":  {"{devices: all, mig-enabled: true, mig-devices: {1g.10gb: -1}}", "is -1, it can be 0 to 16"},
		"both modes": {"{devices: all, mig-enabled: false}, {devices: [0], " + one + "}",
			"mig-configs.bad[1].mig-enabled: is true, and entry 0 has false for the same GPUs: mig-parted fails there; give each GPU one mode"},
		"both modes by ID": {`{devices: all, device-filter: "0x233010DE", mig-enabled: false}, {devices: all, ` + one + "}", "entry 0 has false for the same GPUs"},
		"both modes by subsystem": {`{devices: all, device-filter: "0x233010DE:0x16C110DE", mig-enabled: false}, {devices: all, device-filter: ["0x233010DE", "0x20B010DE"], ` + one + "}",
			"entry 0 has false for the same GPUs"},
		"both modes of some IDs": {`{devices: all, device-filter: ["0x233010DE:0x16C110DE", "0x20B010DE"], mig-enabled: false}, {devices: all, device-filter: ["0x233010DE", "0x20B210DE"], ` + one + "}",
			"entry 0 has false for the same GPUs"},
		"both modes of one GPU": {`{devices: [0], device-filter: "0x233010DE", mig-enabled: false}, {devices: all, device-filter: ["0x233010DE", "0x20B010DE"], ` + one + "}",
			"entry 0 has false for the same GPUs"},
		"both modes by index": {"{devices: [0, 1], mig-enabled: false}, {devices: [1, 2], " + one + "}", "entry 0 has false for the same GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			profiles, err := formats.ReadMIGParted(strict.Text{File: "f", Data: []byte("version: v1\nmig-configs: {bad: [" + tt.entries + "], good: [{devices: all, mig-enabled: false}]}")})
			require.NoError(t, err)
			require.Len(t, profiles, 2)
			require.ErrorContains(t, profiles[0].Err, tt.want)
			assert.Empty(t, profiles[0].Spec)
			require.NoError(t, profiles[1].Err)
		})
	}
}

// Entries with different modes that no GPU, or not every node's, has in common.
func TestModesThatGoTogether(t *testing.T) {
	const on = "mig-enabled: true, mig-devices: {}"
	for entries, noted := range map[string]bool{
		"{devices: [0], mig-enabled: false}, {devices: [1], " + on + "}":                                                                                 false,
		"{devices: [], mig-enabled: false}, {devices: all, " + on + "}":                                                                                  true,
		`{devices: all, device-filter: "0x233010DE", mig-enabled: false}, {devices: all, device-filter: "0x20B010DE", ` + on + "}":                       false,
		`{devices: all, device-filter: "0x233010DE:0x16C110DE", mig-enabled: false}, {devices: all, device-filter: "0x233010DE:0x16C010DE", ` + on + "}": false,
		`{devices: [4], mig-enabled: false}, {devices: all, device-filter: "0x20B010DE", ` + on + "}":                                                    true,
	} {
		profiles, err := formats.ReadMIGParted(strict.Text{File: "f", Data: []byte("version: v1\nmig-configs: {a: [" + entries + "]}")})
		require.NoError(t, err)
		require.NoError(t, profiles[0].Err, entries)
		assert.Equal(t, noted, len(profiles[0].Notes) > 0, "%s: %v", entries, profiles[0].Notes)
	}
}

// Every configuration that is read is a valid PartitionProfile.
func FuzzReadMIGParted(f *testing.F) {
	golden.Seeds(f, "testdata/migparted/*.yaml")
	f.Add([]byte(`{"version": "v1", "mig-configs": {"a": [{"devices": [0, 1e9], "device-filter": ["0x233010DE:017", "7"], "mig-enabled": true, "mig-devices": {"7c.7g.80gb": 1, "7g.80gb": 16}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		profiles, err := formats.ReadMIGParted(strict.Text{File: "f", Data: data})
		if err != nil {
			require.Empty(t, profiles)
			return
		}
		for _, p := range profiles {
			if p.Err != nil {
				require.Empty(t, p.Spec)
				continue
			}
			_, err := profile.FromRules("x", p.Spec.Rules)
			require.NoError(t, err)
		}
	})
}
