package formats_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	ours "github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/test/golden"
)

// What becomes of each file of testdata is in the file beside it.
func TestReadDeviceConfigManager(t *testing.T) {
	golden.Files(t, "testdata/dcm/*.json", func(t *testing.T, name string, data []byte) string {
		profiles, notes, err := formats.ReadDeviceConfigManager(strict.Text{File: name, Data: data})
		require.NoError(t, err)
		var got strings.Builder
		for _, note := range notes {
			got.WriteString("# " + note + "\n")
		}
		for _, p := range profiles {
			message := ""
			if p.Err != nil {
				message = p.Err.Error()
			}
			text, err := yaml.Marshal(map[string]any{"name": p.Original, "error": message, "notes": p.Notes, "spec": p.Spec})
			require.NoError(t, err)
			got.WriteString("---\n" + string(text))
		}
		return got.String()
	})
}

func TestDeviceConfigManagerRefused(t *testing.T) {
	for name, tt := range map[string]struct{ document, want string }{
		"no profile":       {`{"gpu-config-profiles": {}}`, "f: gpu-config-profiles: names no profile"},
		"unknown key":      {"{\"gpu-config-profiles\":\n {\"a\": {\"profile\": []}}}", "f: gpu-config-profiles.a.profile: unknown key; did you mean profiles? (line 2)"},
		"key in two cases": {`{"gpu-config-profiles": {"a": {"profiles": [], "Profiles": []}}}`, "gpu-config-profiles.a.Profiles: duplicate key"},
		"a negative ID":    {`{"gpu-config-profiles": {"a": {"skippedGPUs": {"ids": [-1]}}}}`, "ids[0]: must be a whole number, not -1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := formats.ReadDeviceConfigManager(strict.Text{File: "f", Data: []byte(tt.document)})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// Profiles that are refused; the others of the file are not.
func TestProfilesRefused(t *testing.T) {
	const good = `{"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 8}`
	for name, tt := range map[string]struct{ profile, want string }{
		"no entry":          {`{"profiles": []}`, "gpu-config-profiles.bad.profiles: has no entry"},
		"too many entries":  {`{"profiles": [` + strings.Repeat(good+",", 13) + good + `]}`, "profiles: has 14 entries, it can have 13"},
		"no compute mode":   {`{"profiles": [{"memoryPartition": "NPS1"}]}`, "profiles[0].computePartition: is missing; it can be SPX, DPX, QPX, CPX"},
		"no memory mode":    {`{"profiles": [{"computePartition": "SPX"}]}`, "profiles[0].memoryPartition: is missing; it can be NPS1"},
		"lower case":        {`{"profiles": [{"computePartition": "cpx", "memoryPartition": "NPS4"}]}`, `computePartition: is "cpx"; did you mean CPX?`},
		"TPX":               {`{"profiles": [{"computePartition": "TPX", "memoryPartition": "NPS1"}]}`, `computePartition: is "TPX", it can be SPX, DPX, QPX, CPX`},
		"two memory modes":  {`{"profiles": [` + good + `, {"computePartition": "CPX", "memoryPartition": "NPS4", "numGPUsAssigned": 1}]}`, "profiles[1].memoryPartition: is NPS4, and the first entry has NPS1: all GPUs of a node share"},
		"two with the rest": {`{"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS1"}, {"computePartition": "SPX", "memoryPartition": "NPS1", "numGPUsAssigned": 0}]}`, "profiles[1].numGPUsAssigned: is missing or 0, and entry 0 has the GPUs that are left"},
		"thousands":         {`{"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS4", "numGPUsAssigned": 3543}]}`, "numGPUsAssigned: is 3543, it can be 1 to 64"},
		"skipped twice":     {`{"skippedGPUs": {"ids": [1, 1]}, "profiles": [` + good + `]}`, "skippedGPUs.ids[1]: is there twice"},
		"none that skipped": {`{"skippedGPUs": {"ids": [64]}, "profiles": [` + good + `]}`, "skippedGPUs.ids[0]: is 64, and no node has so many GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			profiles, _, err := formats.ReadDeviceConfigManager(strict.Text{File: "f", Data: []byte(`{"gpu-config-profiles": {"bad": ` + tt.profile + `, "good": {"profiles": [` + good + `]}}}`)})
			require.NoError(t, err)
			require.Len(t, profiles, 2)
			require.ErrorContains(t, profiles[0].Err, tt.want)
			require.NoError(t, profiles[1].Err)
		})
	}
}

// Every profile that is read is a valid PartitionProfile.
func FuzzReadDeviceConfigManager(f *testing.F) {
	golden.Seeds(f, "testdata/dcm/*.json")
	f.Add([]byte(`{"GPU-CONFIG-PROFILES": {"a": {"Skippedgpus": {"IDS": [63]}, "profiles": [{"computepartition": "QPX", "memoryPartition": "NPS8", "numGPUsAssigned": 64}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		profiles, _, err := formats.ReadDeviceConfigManager(strict.Text{File: "f", Data: data})
		if err != nil {
			require.Empty(t, profiles)
			return
		}
		for _, p := range profiles {
			if p.Err != nil {
				require.Empty(t, p.Spec)
				continue
			}
			_, err := ours.FromRules("x", p.Spec.Rules)
			require.NoError(t, err)
		}
	})
}
