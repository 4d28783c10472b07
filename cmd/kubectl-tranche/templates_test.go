package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/golden"
)

func TestTemplates(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	machine := filepath.Join(t.TempDir(), "machine.yaml")
	require.NoError(t, os.WriteFile(machine, []byte("gpus: [{model: A30-24GB, migMode: enabled}, {model: L4-24GB}]"), 0o600))
	out, err := run(t, "templates", "--inventory", machine, "--node-name", "gpu-pool-1")
	require.NoError(t, err)
	golden.Equal(t, "testdata/templates.yaml", out)
}

// TestTemplatesOfEveryInventory: complete pools, the same in either format.
func TestTemplatesOfEveryInventory(t *testing.T) {
	for _, name := range models.InventoryNames() {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		var lists [2]resourceapi.ResourceSliceList
		for i, format := range []string{"yaml", "json"} {
			out, err := run(t, "templates", "--inventory", name, "-o", format)
			require.NoError(t, err)
			require.Equal(t, format == "json", json.Valid([]byte(out)))
			if format == "yaml" {
				require.NoError(t, yaml.UnmarshalStrict([]byte(out), &lists[i]))
				continue
			}
			d := json.NewDecoder(strings.NewReader(out)) // in a tenth of the time
			d.DisallowUnknownFields()
			require.NoError(t, d.Decode(&lists[i]))
		}
		require.Equal(t, lists[0], lists[1])
		require.Len(t, lists[0].Items, (len(inv.GPUs)+len(inv.AMD)+7)/8+len(inv.GPUs)+len(inv.AMD), name)
		for _, slice := range lists[0].Items {
			assert.Equal(t, "node", *slice.Spec.NodeName)
			assert.Empty(t, slice.OwnerReferences)
		}
	}
}

// TestTemplatesOfAProfile: what an administrator wants of the GPUs is in the slices.
func TestTemplatesOfAProfile(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(profile, []byte(
		"apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}\nspec: {rules: [{sharing: {wholeGPUs: false, partitions: {profiles: [3g.40gb]}}}]}"), 0o600))
	shares := func(args ...string) (names []string) {
		out, err := run(t, append([]string{"templates", "--inventory", "h100x8"}, args...)...)
		require.NoError(t, err)
		var list resourceapi.ResourceSliceList
		require.NoError(t, yaml.UnmarshalStrict([]byte(out), &list))
		for _, d := range list.Items[1].Spec.Devices {
			if *d.Attributes["type"].StringValue == "share" {
				names = append(names, d.Name)
			}
		}
		return names
	}
	const gpuID = "gpu-0000-1b-00-0"
	assert.Equal(t, []string{gpuID + "-memory-share", gpuID + "-fraction-share"}, shares())
	assert.Equal(t, []string{gpuID + "-mig-3g-40gb-4-memory-share", gpuID + "-mig-3g-40gb-0-memory-share"}, shares("--profile", profile))
}

// What the node would offer once it follows a profile, whatever mode it is in now.
func TestTemplatesOfAShape(t *testing.T) {
	for rule, want := range map[string][]string{
		"a100-80x8-mig-off {mig: {mode: Static, partitions: [{profile: 3g}]}}":                       {"gpu-0000-07-00-0-mig-3g-40gb-4", "gpu-0000-07-00-0-mig-3g-40gb-0"},
		"a100-80x8 {mig: {mode: Disabled}, sharing: {wholeGPUs: false}}":                             {"gpu-0000-07-00-0"},
		"h100x8 {mig: {profiles: [4g], wholeGPUs: false}}":                                           {"gpu-0000-1b-00-0-mig-4g-40gb-0"},
		"mi300x8 {xcp: {computePartition: QPX, memoryPartition: NPS4}}":                              {"gpu-0000-05-00-0-qpx-0", "gpu-0000-05-00-0-qpx-1", "gpu-0000-05-00-0-qpx-2", "gpu-0000-05-00-0-qpx-3"},
		"mi308x8 {xcp: {computePartition: SPX, memoryPartition: NPS1}, sharing: {wholeGPUs: false}}": {"gpu-0000-0a-00-0"},
	} {
		machine, rule, _ := strings.Cut(rule, " ")
		profile := filepath.Join(t.TempDir(), "profile.yaml")
		require.NoError(t, os.WriteFile(profile, []byte("apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}\nspec: {rules: ["+rule+"]}"), 0o600))
		out, err := run(t, "templates", "--inventory", machine, "--profile", profile)
		require.NoError(t, err)
		var list resourceapi.ResourceSliceList
		require.NoError(t, yaml.UnmarshalStrict([]byte(out), &list))
		var names []string
		for _, d := range list.Items[1].Spec.Devices {
			if !gpu.IsMonitor(d.Name) {
				names = append(names, d.Name)
			}
		}
		assert.Equal(t, want, names, rule)
	}
}

func TestTemplatesMistakes(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "machine.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("gpus: [{model: H100}]"), 0o600))
	misspelt := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(misspelt, []byte("apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}\nspec: {rulez: []}"), 0o600))
	unfit := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(unfit, []byte("apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}\nspec: {rules: [{mig: {profiles: [1g]}}]}"), 0o600))
	for want, args := range map[string][]string{
		"spec.rulez":                                          {"--inventory", "l4x4", "--profile", misspelt},
		"NVIDIA L4 does not support MIG":                      {"--inventory", "l4x4", "--profile", unfit},
		"read --profile: open ./none: ":                       {"--inventory", "l4x4", "--profile", "./none"},
		`unknown inventory "h100": choose one of a100-40x8, `: {"--inventory", "h100"},
		"no inventory named: choose one of a100-40x8, ":       {},
		`"H100" is several models: choose one of H100-80GB, `: {"--inventory", broken},
		"no such file":                                        {"--inventory", "./none"},
		`unsupported output format "wide": use yaml or json`:  {"--inventory", "l4x4", "-o", "wide"},
		`--node-name "Node A" is not a valid node name`:       {"--inventory", "l4x4", "--node-name", "Node A"},
		"unknown command":                                     {"h100x8"},
	} {
		_, err := run(t, append([]string{"templates"}, args...)...)
		assert.ErrorContains(t, err, want)
	}
}

func TestTemplatesHelp(t *testing.T) {
	out, err := run(t, "templates", "--help")
	require.NoError(t, err)
	text, _, _ := strings.Cut(out, "\nUsage:")
	for _, name := range slices.Concat(models.InventoryNames(), models.NVIDIAModels(), models.AMDModels()) {
		assert.Contains(t, text, name)
	}
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len(line), 82, line)
	}
	assert.Contains(t, out, "kubectl tranche templates --inventory h100x8")
}

// TestWithoutCgo: the program is built for everybody's machine, without cgo,
// which all of NVML needs.
func TestWithoutCgo(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=1")
	list.Stderr = t.Output() // such as that the module cache cannot be written
	out, err := list.Output()
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(string(out)), "packages that need cgo")
}
