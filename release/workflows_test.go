package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The workflows do nothing that a developer cannot do: they call targets of the Makefile.
// Actions of others are those of one commit.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 3)
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
		assert.Equal(t, builder, images.FindString(read(t, file)), file)
	}
	for _, want := range []string{"verify", "test", "release", "push"} {
		assert.True(t, called[want], want)
	}
	parts := regexp.MustCompile(`(?m)^NIGHTLY = (.*)$`).FindStringSubmatch(makefile)
	require.NotNil(t, parts)
	assert.Contains(t, read(t, "..", ".github", "workflows", "nightly.yml"), "target: ["+strings.ReplaceAll(parts[1], " ", ", ")+"]\n")
	for target := range called {
		assert.Contains(t, makefile, "\n"+target+":")
	}
}
