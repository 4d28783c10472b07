package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The workflows do nothing that a developer cannot do: they call targets of the Makefile.
// Actions of others are those of one commit.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 5)
	makefile := read(t, "..", "Makefile")
	called := map[string]bool{}
	for _, file := range files {
		text := read(t, file)
		// A job that needs more says so itself.
		assert.Contains(t, text, "\npermissions:\n  contents: read\n\n", file)
		for _, call := range regexp.MustCompile(`\bmake (?:--silent )?([a-z-]+)`).FindAllStringSubmatch(text, -1) {
			called[call[1]] = true
		}
		if list := regexp.MustCompile(`target: \[(.*)\]`).FindStringSubmatch(text); list != nil {
			for target := range strings.SplitSeq(list[1], ", ") {
				called[target] = true
			}
		}
		for _, action := range regexp.MustCompile(`uses: (\S+)(.*)`).FindAllStringSubmatch(text, -1) {
			assert.Regexp(t, `^[\w/-]+@[0-9a-f]{40}$`, action[1], file)
			assert.Regexp(t, `^ # v\d+\.\d+\.\d+$`, action[2], file)
		}
	}
	// What is built here is built with the Go of the Dockerfile.
	images := regexp.MustCompile(`golang:\S+`)
	builder := images.FindString(read(t, "..", "deployments", "container", "Dockerfile"))
	assert.Regexp(t, `@sha256:[0-9a-f]{64}$`, builder)
	for _, file := range files {
		if text := read(t, file); strings.Contains(text, "container:") {
			assert.Equal(t, builder, images.FindString(text), file)
		}
	}
	for _, want := range []string{"verify", "test", "release", "push", "vulnerabilities"} {
		assert.True(t, called[want], want)
	}
	parts := regexp.MustCompile(`(?m)^NIGHTLY = (.*)$`).FindStringSubmatch(makefile)
	require.NotNil(t, parts)
	assert.Contains(t, read(t, "..", ".github", "workflows", "nightly.yml"), "target: ["+strings.ReplaceAll(parts[1], " ", ", ")+"]\n")
	for target := range called {
		assert.Contains(t, makefile, "\n"+target+":")
	}
}

// Dependabot watches each Go module and each folder of npm.
func TestDependabot(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "..", ".github", "dependabot.yml")), &config))
	watched := map[string][]string{}
	for _, u := range config.Updates {
		watched[u.Ecosystem] = slices.Concat(watched[u.Ecosystem], u.Directories, strings.Fields(u.Directory))
	}
	for file, ecosystem := range map[string]string{"go.mod": "gomod", "package.json": "npm", "Dockerfile": "docker"} {
		list := exec.CommandContext(t.Context(), "git", "ls-files", file, "*/"+file)
		list.Dir = ".."
		out, err := list.Output()
		require.NoError(t, err)
		var folders []string
		for _, path := range strings.Fields(string(out)) {
			folders = append(folders, filepath.Join("/", filepath.Dir(path)))
		}
		assert.ElementsMatch(t, folders, watched[ecosystem], ecosystem)
	}
	assert.Equal(t, []string{"/"}, watched["github-actions"])
}

// The forms of issues are valid, and the one for hardware names flags of hardware-test.
func TestIssueForms(t *testing.T) {
	files, err := filepath.Glob("../.github/ISSUE_TEMPLATE/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID   string
				Attributes struct {
					Label, Description, Placeholder string
					Multiple                        bool
					Options                         []string
				}
				Validations struct{ Required bool }
			}
		}
		require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, file)), &form), file)
		assert.NotEmpty(t, form.Name+form.Description, file)
		seen := map[string]bool{}
		for _, part := range form.Body {
			assert.Contains(t, []string{"input", "textarea", "dropdown"}, part.Type, file)
			assert.Equal(t, part.Type == "dropdown", len(part.Attributes.Options) > 1, "%s: %s", file, part.ID)
			assert.NotEmpty(t, part.Attributes.Label, file)
			assert.False(t, part.ID == "" || seen[part.ID], "%s: %q", file, part.ID)
			seen[part.ID] = true
		}
	}
	checks, err := filepath.Glob("../test/hardware/*_test.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range checks {
		code.WriteString(read(t, file))
	}
	flags := regexp.MustCompile(`hardware-test -([a-z]+) `).FindAllStringSubmatch(read(t, "..", ".github", "ISSUE_TEMPLATE", "hardware.yml"), -1)
	require.Len(t, flags, 2)
	for _, flag := range flags {
		assert.Contains(t, code.String(), `flag.String("`+flag[1]+`"`)
	}
}
