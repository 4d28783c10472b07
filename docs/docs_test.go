// Package docs_test holds the pages of this folder against the code: every name
// that a page lists is in the code, and every name in the code is in the page.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/uninstall"
)

// The tables of the reference are found by page and heading; the first column of each is
// names in code signs.
func TestReferenceListsWhatThereIs(t *testing.T) {
	attributes, capacities, counters := published(t)
	for place, inCode := range map[string][]string{
		"devices.md#Attributes":                      attributes,
		"devices.md#Capacities":                      capacities,
		"devices.md#Counters":                        counters,
		"../../test/simulator/README.md#Inventories": models.InventoryNames(),
	} {
		t.Run(place, func(t *testing.T) {
			page, heading, _ := strings.Cut(place, "#")
			require.NotEmpty(t, inCode)
			inPage := firstColumn(t, "reference/"+page, heading)
			assert.ElementsMatch(t, inCode, inPage, "docs/reference/%s, table %q (first list: code, second: page)", page, heading)
		})
	}
}

// published is what GPUs carry of attributes, capacities and counters, over all models.
// N stands for the numbers in counters' names.
func published(t *testing.T) (attributes, capacities, counters []string) {
	t.Helper()
	for _, name := range models.InventoryNames() {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		var gpus []publish.GPU
		for _, g := range inv.Hardware("node") {
			numa := int64(0)
			g.NUMANode = &numa
			desired := profile.Default()
			desired.MaxMemoryLimitPercent = 2 * gpu.LimitIsRequest
			shares, err := desired.ShareDevices(&g, true)
			require.NoError(t, err)
			g.Placements = append(g.Placements, shares...)
			gpus = append(gpus, publish.GPU{GPU: g, ExtendedResource: "nvidia.com/gpu"})
		}
		published, errs := publish.Slices(gpus)
		require.Empty(t, errs)
		for _, slice := range published {
			for _, set := range slice.SharedCounters {
				for c := range set.Counters {
					counters = append(counters, regexp.MustCompile(`[0-9]+$`).ReplaceAllString(c, "N"))
				}
			}
			for _, d := range slice.Devices {
				for a := range d.Attributes {
					attributes = append(attributes, string(a))
				}
				for c := range d.Capacity {
					capacities = append(capacities, string(c))
				}
			}
		}
	}
	return sorted(attributes), sorted(capacities), sorted(counters)
}

// sources parses the Go files of a folder and those below it, tests excepted.
func sources(t *testing.T, folder string) []*ast.File {
	t.Helper()
	var files []*ast.File
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		files = append(files, file)
		return err
	}))
	return files
}

func inspect(t *testing.T, folder string, look func(ast.Node)) {
	t.Helper()
	for _, file := range sources(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool { look(n); return true })
	}
}

func text(n ast.Node) (string, bool) {
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(literal.Value)
	return s, err == nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

var code = regexp.MustCompile("`([^`]+)`")

// firstColumn is the names in the first column of the tables below a heading.
func firstColumn(t *testing.T, page, heading string) (names []string) {
	t.Helper()
	in := false
	for line := range strings.Lines(read(t, page)) {
		if strings.HasPrefix(line, "#") {
			in = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
			continue
		}
		if !in || !strings.HasPrefix(line, "|") {
			continue
		}
		cell := strings.Split(line, "|")[1]
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			names = append(names, m[1])
		}
	}
	require.NotEmpty(t, names, "%s has no table below %q", page, heading)
	return names
}

func read(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(data)
}

// pages are all pages that people read.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*.md")
	require.NoError(t, err)
	below, err := filepath.Glob("*/*.md")
	require.NoError(t, err)
	demos, err := filepath.Glob("../demo/*/README.md")
	require.NoError(t, err)
	community, err := filepath.Glob("../.github/*.md")
	require.NoError(t, err)
	return slices.Concat(found, below, demos, community, []string{
		"../README.md", "../demo/README.md", "../CHANGELOG.md", "../SECURITY.md", "../CONTRIBUTING.md", "../release/README.md", "../api/stored-formats.md", "../api/deprecation.md",
		"../test/cluster/kubernetes-1.38.md", "../test/ai-conformance.md", "../test/hardware/README.md", "../test/simulator/README.md",
	})
}

// toBeWritten are pages that may be linked before they are there.
var toBeWritten []string

var link = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor := m[1], strings.TrimPrefix(m[2], "#")
			if strings.Contains(target, "://") || slices.Contains(toBeWritten, filepath.Base(target)) {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); !assert.NoError(t, err, "%s links to %s", page, target) {
				continue
			}
			if anchor != "" {
				assert.Contains(t, anchors(t, path), anchor, "%s links to %s#%s", page, target, anchor)
			}
		}
	}
}

// anchors are what GitHub makes of the headings of a page.
func anchors(t *testing.T, page string) (found []string) {
	t.Helper()
	drop := regexp.MustCompile("[^a-z0-9 _-]")
	for line := range strings.Lines(read(t, page)) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			found = append(found, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-"))
		}
	}
	return found
}

// What pages tell people to make are targets of the Makefile.
func TestTargetsOfPages(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z0-9 -]*):`).FindAllStringSubmatch(read(t, "../Makefile"), -1) {
		for target := range strings.FieldsSeq(match[1]) {
			targets[target] = true
		}
	}
	made := 0
	for _, page := range pages(t) {
		for _, match := range regexp.MustCompile("(?m)(?:^|`)make ((?:[a-z0-9-]+ ?)+)").FindAllStringSubmatch(read(t, page), -1) {
			for target := range strings.FieldsSeq(match[1]) {
				made++
				assert.True(t, targets[target], "%s: make %s", page, target)
			}
		}
	}
	assert.Greater(t, made, 40)
}

// Values that a page sets are values of the chart.
func TestValuesAreOfTheChart(t *testing.T) {
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../deployments/helm/tranche/values.yaml")), &values))
	set := regexp.MustCompile(`--set(?:-file|-string)? '?([^\s'"` + "`" + `]+)`)
	for _, page := range pages(t) {
		for _, m := range set.FindAllStringSubmatch(read(t, page), -1) {
			for pair := range strings.SplitSeq(m[1], ",") {
				key, _, _ := strings.Cut(pair, "=")
				if foreign.MatchString(key) {
					continue
				}
				assert.True(t, has(values, strings.Split(strings.ReplaceAll(key, "[0]", ""), ".")), "%s sets %s, which the chart does not have", page, key)
			}
		}
	}
}

// Who cleans up by hand deletes objects of all kinds of the chart.
func TestCleanUpNamesAllKinds(t *testing.T) {
	script := read(t, "../deployments/clean-up.sh")
	// Pods go with what made them, and a cluster need not have the kinds of the Prometheus Operator.
	except := []string{"pods", "podmonitors", "servicemonitors", "prometheusrules", "customresourcedefinitions"}
	for _, kind := range uninstall.Kinds {
		if !slices.Contains(except, kind.Resource) {
			assert.Regexp(t, `[ ,]`+kind.Resource+`[,\n]`, script)
		}
	}
}

// Commands that delete one of the chart's CustomResourceDefinitions delete all of them.
func TestCommandsDeleteAllDefinitions(t *testing.T) {
	files, err := filepath.Glob("../deployments/helm/tranche/files/crds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	commands := regexp.MustCompile("kubectl delete (?:crd|customresourcedefinition) [^#`\n]+")
	found := 0
	for _, file := range append(pages(t), "../test/release.sh", "../deployments/clean-up.sh") {
		for _, command := range commands.FindAllString(read(t, file), -1) {
			found++
			for _, f := range files {
				kind, _ := strings.CutPrefix(strings.TrimSuffix(filepath.Base(f), ".yaml"), "tranche.dev_")
				assert.Contains(t, command, kind+".tranche.dev", file)
			}
		}
	}
	assert.NotZero(t, found)
}

// foreign are values of other charts that a page names: the GPU operator's, those
// of NVIDIA's DRA driver and the KAI scheduler's.
var foreign = regexp.MustCompile(`^(devicePlugin|migManager|dcgmExporter|dcgm|gfd|resources|global|binder)\.`)

func has(values map[string]any, path []string) bool {
	value, ok := values[path[0]]
	if !ok || len(path) == 1 {
		return ok
	}
	if _, list := value.([]any); list || path[0] == "nodeSelector" {
		return true // what is in it is the user's
	}
	inner, ok := value.(map[string]any)
	// An empty map takes any key.
	return ok && (len(inner) == 0 || has(inner, path[1:]))
}

// Messages that pages of symptoms quote, in lines that begin with >, are those of the programs. … stands for what differs.
func TestQuotedMessagesAreInTheCode(t *testing.T) {
	var all strings.Builder
	for _, folder := range []string{"../pkg", "../cmd"} {
		inspect(t, folder, func(n ast.Node) {
			if s, ok := text(n); ok {
				all.WriteString(strings.ToLower(s) + "\n")
			}
		})
	}
	verb := regexp.MustCompile(`%[a-z]`)
	in := verb.ReplaceAllString(all.String(), "…")
	quotes := 0
	for _, page := range []string{"user/pending.md", "at-night.md"} {
		for line := range strings.Lines(read(t, page)) {
			quote, ok := strings.CutPrefix(line, "> ")
			if !ok {
				continue
			}
			quotes++
			for part := range strings.SplitSeq(strings.ToLower(strings.TrimSpace(quote)), "…") {
				if part = strings.TrimSpace(part); len(part) > 3 {
					assert.Contains(t, in, part, "docs/%s quotes what no program says", page)
				}
			}
		}
	}
	assert.Greater(t, quotes, 20)
}
