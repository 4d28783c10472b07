package formats

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/test/golden"
)

// TestPublicFiles: configuration files that people have published. Their keys and values are in
// testdata/public, with repository and path in the first line; testdata/public.golden says what
// becomes of each.
func TestPublicFiles(t *testing.T) {
	files := publicFiles(t)
	require.GreaterOrEqual(t, len(files), 30)
	var got strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		source, _, _ := strings.Cut(strings.TrimPrefix(string(data), "# "), "\n")
		fmt.Fprintf(&got, "%s\n", source)
		documents, err := Read("file", data)
		for _, d := range documents {
			fmt.Fprintf(&got, "  %s: %s\n", d.Format, strings.TrimPrefix(d.Name, "file: "))
			for _, p := range d.Profiles {
				if p.Err == nil {
					fmt.Fprintf(&got, "    %s: %d rules\n", p.Name, len(p.Spec.Rules))
				} else {
					fmt.Fprintf(&got, "    %s: refused: %v\n", p.Original, p.Err)
				}
			}
		}
		if err != nil {
			fmt.Fprintf(&got, "  refused: %v\n", err)
		}
	}
	golden.Equal(t, "testdata/public.golden", got.String())
}

func publicFiles(t testing.TB) []string {
	files, err := filepath.Glob("testdata/public/*.yaml")
	require.NoError(t, err)
	return files
}

// Whatever is read is a valid PartitionProfile with a name.
func FuzzRead(f *testing.F) {
	golden.Seeds(f, "testdata/public/*.yaml")
	f.Add([]byte("kind: List\nitems:\n- kind: KaiwoNode\n  spec: {partitioning: {enabled: true, profile: cpx}}\n- kind: Node\n  metadata: {labels: {nos.nebuly.com/gpu-partitioning: hybrid}}\n"))
	f.Add([]byte("kind: PartitioningPlan\nspec: {rules: [{selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}, profile: {dcmProfileName: a}}]}\n--- # next\nkind: PartitioningProfile\nspec: {profileName: spx}\n"))
	f.Add([]byte("--- {flags: {}}\n---\tsharing:\n...\n--- |\n a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, _ := Read("f", data)
		for _, d := range documents {
			for _, p := range d.Profiles {
				if p.Err != nil {
					require.Empty(t, p.Spec)
					continue
				}
				checkValid(t, p)
			}
		}
		_ = Distinct(documents)
	})
}

// Files of the device plugin that are read are valid PartitionProfiles, too.
func FuzzDevicePlugin(f *testing.F) {
	f.Add([]byte("sharing: {timeSlicing: {resources: [{name: mig-1g.5gb, replicas: 3}, {name: gpu, replicas: 1000}]}}"))
	f.Add([]byte("flags: {migStrategy: single}\nsharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 48}]}, timeSlicing: {}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, _, err := readDevicePlugin(strict.Text{File: "f", Data: data})
		if err == nil {
			_, err = profile.FromRules("x", spec.Rules)
			require.NoError(t, err)
		}
	})
}
