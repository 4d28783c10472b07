package docs_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const shippedProfiles = "../deployments/helm/tranche/files/profiles"

// What the page says does not fit a machine does not, in these words.
func TestMisfitsOfProfiles(t *testing.T) {
	rows := 0
	in := false
	for line := range strings.Lines(read(t, profilesPage)) {
		if strings.HasPrefix(line, "#") {
			in = strings.TrimSpace(line) == "## Profiles that do not fit a node"
		}
		cells := code.FindAllStringSubmatch(line, -1)
		if !in || !strings.HasPrefix(line, "| `") || len(cells) != 3 {
			continue
		}
		rows++
		s, err := profile.Parse("f", []byte("apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: f}\nspec: {rules: [{"+cells[0][1]+"}]}"))
		require.NoError(t, err, line)
		inv, err := models.LoadInventory(cells[1][1])
		require.NoError(t, err)
		_, err = s.Resolve(inv.Hardware("node"), nil)
		require.Error(t, err)
		assert.True(t, strings.HasSuffix(err.Error(), ": "+cells[2][1]), "%s\n%v", line, err)
	}
	assert.Equal(t, 6, rows)
}

// The example of the page does on a machine with both vendors' GPUs what it says.
func TestExampleOfProfiles(t *testing.T) {
	block := yamlBlock.FindStringSubmatch(read(t, profilesPage))
	s, err := profile.Parse("training", []byte(block[1]))
	require.NoError(t, err)
	inv, err := models.ParseInventory([]byte("gpus: [{model: H100-80GB, count: 3}, {model: MI300X, count: 1}]"))
	require.NoError(t, err)
	gpus := inv.Hardware("node")
	resolved, err := s.Resolve(gpus, nil)
	require.NoError(t, err)
	var shapes []string
	for _, g := range gpus {
		shape := resolved[g.PCIAddress].Layout
		shapes = append(shapes, fmt.Sprintf("%s%s%s %d %v %v", shape.Partitioning, shape.Compute, shape.Memory, len(shape.Static), shape.Profiles, shape.NoWhole))
	}
	slices.Sort(shapes)
	// 3g and four of 1g.
	assert.Equal(t, []string{" 0 [1g.10gb 2g.20gb] true", "CPXNPS4 0 [] false", "Static 5 [] false", "Static 5 [] false"}, shapes)
}

// The table of the profiles that come with the chart is made of their files. Each fits one
// of the simulator's machines.
func TestProfilesOfTheChart(t *testing.T) {
	files, err := filepath.Glob(shippedProfiles + "/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var rows [][]string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var p v1beta1.PartitionProfile
		require.NoError(t, strict.Decode(file, content, &p))
		s, err := profile.FromRules(p.Name, p.Spec.Rules)
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(slices.Concat(models.InventoryNames(), models.NVIDIAModels()), func(name string) bool {
			inv, err := models.LoadInventory(name)
			if err != nil {
				inv, err = models.ParseInventory([]byte("gpus: [{model: " + name + "}]"))
			}
			require.NoError(t, err)
			resolved, err := s.Resolve(inv.Hardware("node"), nil)
			return err == nil && slices.ContainsFunc(slices.Collect(maps.Values(resolved)), func(c profile.Desired) bool { return c.Profile == p.Name })
		}), "%s fits no machine", p.Name)
		name, meaning := "`"+p.Name+"`", describe(&p)
		if i := slices.IndexFunc(rows, func(row []string) bool { return row[1] == meaning }); i >= 0 {
			rows[i][0] += ", " + name
			continue
		}
		rows = append(rows, []string{name, meaning})
	}
	generated(t, profilesPage, "shipped-profiles", table([]string{"profile", "meaning"}, rows))
}

// likeItsName is what profiles say that differ in their names alone.
func likeItsName(p *v1beta1.PartitionProfile) (string, bool) {
	if len(p.Spec.Rules) != 1 || p.Spec.Rules[0].Sharing != nil {
		return "", false
	}
	m, a := p.Spec.Rules[0].MIG, p.Spec.Rules[0].XCP
	switch {
	case m != nil && a == nil && len(m.Partitions) == 1 && m.Partitions[0].Count == nil:
		return "MIG `Static`, as many partitions of this profile as fit", p.Name == "all-"+strings.ReplaceAll(m.Partitions[0].Profile, "+", ".")
	case m == nil && a != nil && a.MemoryPartition == "":
		return "AMD compute mode of this name", p.Name == strings.ToLower(a.ComputePartition)
	case m == nil && a != nil:
		return "AMD compute mode and memory mode of this name", p.Name == strings.ToLower(a.ComputePartition+"-"+a.MemoryPartition)
	}
	return "", false
}

// describe says in words what a profile of the chart says.
func describe(p *v1beta1.PartitionProfile) string {
	if meaning, ok := likeItsName(p); ok {
		return meaning
	}
	var texts []string
	for _, r := range p.Spec.Rules {
		var text []string
		if m := r.MIG; m != nil {
			var parts []string
			for _, part := range m.Partitions {
				count := "as many as fit"
				if part.Count != nil {
					count = fmt.Sprint(*part.Count)
				}
				parts = append(parts, fmt.Sprintf("`%s`: %s", part.Profile, count))
			}
			text = append(text, "MIG "+strings.TrimSpace(string(m.Mode)+" "+strings.Join(parts, ", ")))
		}
		if a := r.XCP; a != nil {
			text = append(text, strings.TrimSpace(a.ComputePartition+" "+a.MemoryPartition))
		}
		if s := r.Sharing; s != nil {
			text = append(text, fmt.Sprintf("%s, %d replicas", s.Strategy, *s.Replicas))
		}
		if e := r.ExtendedResource; e != nil {
			text = append(text, "`extendedResource: {device: "+string(e.Device)+"}`")
		}
		if r.Unchanged {
			text = append(text, "unchanged")
		}
		if r.GPUs != nil && len(r.GPUs.ProductNames) > 0 {
			text = append(text, "on `"+strings.Join(r.GPUs.ProductNames, "`, `")+"`")
		}
		texts = append(texts, strings.Join(text, "; "))
	}
	return strings.Join(texts, ". Others: ")
}
