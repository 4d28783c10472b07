package docs_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Names of the previous release that are gone, or lost a value, are quoted in CHANGELOG.md: api/deprecation.md
// says when they may go.
func TestNamesThatAreGone(t *testing.T) {
	previous := strings.TrimSpace(read(t, "../release/previous"))
	show := exec.CommandContext(t.Context(), "git", "show", previous+":api/public-names.txt")
	show.Dir = ".."
	old, err := show.Output()
	if err != nil {
		t.Skipf("the history has no %s (release/previous): fetch all of it", previous)
	}
	changelog := read(t, "../CHANGELOG.md")
	for _, name := range namesGone(string(old), read(t, publicNames)) {
		assert.Contains(t, changelog, "`"+name+"`", "CHANGELOG.md does not say that this public name of %s is gone", previous)
	}
}

func TestNamesGone(t *testing.T) {
	for _, tt := range []struct {
		name, before, after string
		want                []string
	}{
		{"new names", "## A\nx string\n", "## A\nw string\nx string\n## B\ny\n", nil},
		{"field", "## A\nspec.x string\nspec.y string\n", "## A\nspec.y string\n", []string{"spec.x"}},
		{"type", "## A\nspec.x string\n", "## A\nspec.x integer\n", []string{"spec.x"}},
		{"value", "## A\nspec.x string: One, Two\n", "## A\nspec.x string: Three, Two\n", []string{"One"}},
		{"all values may be new ones", "## A\nspec.x string\n", "## A\nspec.x string: One\n", []string{"spec.x"}},
		{"value of a name", "## A\nresult: One\nresult: Two\n", "## A\nresult: Two\n", []string{"One"}},
		{"label of a metric", "## A\ntranche_x {node, gpu}\n", "## A\ntranche_x {node}\n", []string{"gpu"}},
		{"metric", "## A\ntranche_x {node, gpu}\n", "## A\ntranche_y {node}\n", []string{"tranche_x"}},
		{"column", "## A\ncolumns: Age, Set By\n", "## A\ncolumns: Age\n", []string{"Set By"}},
		{"command", "## A\nkubectl tranche why (POD | -f FILE)\n", "## A\nkubectl tranche why POD\n", nil},
		{"command gone", "## A\nkubectl tranche set-profile NODE\n", "## A\nkubectl tranche why\n", []string{"kubectl tranche set-profile"}},
		{"flag", "## A\nkubectl tranche top: --output, -o json\nkubectl tranche why: --output, -o json\n", "## A\nkubectl tranche why: --output, -o json\n", []string{"kubectl tranche top --output"}},
		{"default of a flag", "## A\nkubectl tranche top: --max int = 1\n", "## A\nkubectl tranche top: --max int = 2\n", nil},
		{"section", "## Output, kind Old\nx\ny\n## A\nx\n", "## A\nx\n", []string{"Old"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, namesGone(tt.before, tt.after))
		})
	}
}

// namesGone are the names, and the values of names, that a file of public names had and another one lacks.
func namesGone(before, after string) (gone []string) {
	old, now := publicNamesOf(before), publicNamesOf(after)
	for section, names := range old {
		if now[section] == nil {
			words := strings.Fields(section)
			gone = append(gone, words[len(words)-1])
			continue
		}
		for name, was := range names {
			is, stays := now[section][name]
			if !stays || was.kind != is.kind || len(was.values) == 0 && len(is.values) > 0 {
				gone = append(gone, name)
				continue
			}
			for _, value := range was.values {
				if !slices.Contains(is.values, value) {
					gone = append(gone, value)
				}
			}
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// publicName is the type of a name, and the values or labels that it can have.
type publicName struct {
	kind   string
	values []string
}

var (
	commandLine = regexp.MustCompile(`^(kubectl tranche(?: [a-z][a-z-]*)*)(?::| |$)(?: ?(--[a-z-]+))?`)
	nameLine    = regexp.MustCompile(`^([^\s:]+)(?: ([a-z ]+))?(?:: (.*)| \{(.*)\})?$`)
)

// publicNamesOf are the names of each section.
func publicNamesOf(text string) map[string]map[string]publicName {
	sections := map[string]map[string]publicName{}
	var section map[string]publicName
	codes := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = map[string]publicName{}
			sections[title], codes = section, strings.HasPrefix(title, "Exit codes")
			continue
		}
		if section == nil || line == "" {
			continue
		}
		if codes {
			line, _, _ = strings.Cut(line, ":") // What it means is text.
		}
		if m := commandLine.FindStringSubmatch(line); m != nil {
			section[strings.TrimSpace(m[1]+" "+m[2])] = publicName{}
			continue
		}
		m := nameLine.FindStringSubmatch(line)
		if m == nil {
			section[line] = publicName{}
			continue
		}
		name := section[m[1]]
		name.kind = m[2]
		for value := range strings.SplitSeq(m[3]+m[4], ", ") {
			if value != "" {
				name.values = append(name.values, value)
			}
		}
		section[m[1]] = name
	}
	return sections
}

func TestPublicNamesOf(t *testing.T) {
	all := publicNamesOf(read(t, publicNames))
	require.Greater(t, len(all), 50)
	assert.Equal(t, publicName{kind: "string", values: []string{"Enabled", "Disabled"}}, all["Custom resource GPUNode"]["status.node.gpus[].migMode"])
	assert.Contains(t, all["Commands and flags of kubectl tranche"], "kubectl tranche --all-namespaces")
	assert.Contains(t, all["Metrics and their labels"]["tranche_gpu_info"].values, "node")
}
