package demo_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

var profileLabel = regexp.MustCompile(`tranche\.dev/profile[=:] ?([a-z0-9.-]+)`)

// The profiles that the demos' READMEs and manifests name are theirs, or come with the
// chart, and those of theirs can be read.
func TestProfilesThatDemosName(t *testing.T) {
	files, err := filepath.Glob("profile-*/README.md")
	require.NoError(t, err)
	require.Len(t, files, 6, "a demo is new, or gone")
	for _, readme := range files {
		own := map[string]bool{}
		manifests, err := filepath.Glob(filepath.Dir(readme) + "/*.yaml")
		require.NoError(t, err)
		more, err := filepath.Glob(filepath.Dir(readme) + "/*/*.yaml")
		require.NoError(t, err)
		named := ""
		for _, file := range append(append(manifests, more...), readme) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			named += string(data)
			if filepath.Ext(file) != ".yaml" {
				continue
			}
			for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
				var p v1beta1.PartitionProfile
				require.NoError(t, yaml.Unmarshal(document, &p), file)
				if p.Kind != v1beta1.ProfileKind {
					continue
				}
				_, err := profile.Parse(file, document)
				require.NoError(t, err)
				own[p.Name] = true
			}
		}
		found := profileLabel.FindAllStringSubmatch(named, -1)
		require.NotEmpty(t, found, readme)
		for _, m := range found {
			name := strings.TrimSuffix(m[1], "-")
			if own[name] {
				continue
			}
			assert.FileExists(t, "../deployments/helm/tranche/files/profiles/"+name+".yaml", "%s names profile %s", readme, name)
		}
	}
}

// The fault of the demo is one that the simulator knows, on a GPU that it has.
func TestFaultOfTheRollback(t *testing.T) {
	data, err := os.ReadFile("profile-rollback/fault/faults.yaml")
	require.NoError(t, err)
	faults, err := nvdriver.ParseFaults(data)
	require.NoError(t, err)
	require.Len(t, faults.Calls, 1)
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	there := false
	for _, g := range inv.Hardware(nvidia) {
		there = there || g.PCIAddress == faults.Calls[0].GPU && g.Vendor == gpu.NVIDIA
	}
	assert.True(t, there, faults.Calls[0].GPU)
}
