package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/release/internal/notices"
)

// Programs that are released, as the Makefile builds them, contain nothing whose licence is missing, unknown
// or refused. Dependencies meet this test before `make release`.
func TestLicencesOfDependencies(t *testing.T) {
	makefile := read(t, "..", "Makefile")
	static := map[string]bool{}
	builds := regexp.MustCompile(`(?m)^\t(.*)\$\(GO\) build (.*)-o \$\(BIN\)/(\S+) (\S+)$`).FindAllStringSubmatch(makefile, -1)
	require.Len(t, builds, 6)
	all := map[string]map[string]bool{}
	for _, b := range builds {
		static[b[3]] = strings.Contains(b[2], "$(STATIC)")
		// Without tags, which only leave packages out.
		all[b[3]] = licensed(t, notices.Build{Package: b[4], System: "linux", Architecture: "amd64", CGO: !strings.Contains(b[1], "CGO_ENABLED=0")})
	}
	for _, system := range systems {
		licensed(t, notices.Build{Package: "./cmd/kubectl-tranche", System: system, Architecture: "arm64"})
	}
	for name := range licensed(t, notices.Build{Package: "./test/simulator/nvml", System: "linux", Architecture: "amd64", CGO: true}) {
		assert.True(t, all[simulatedDriver][name], "%s is in libnvidia-ml.so.1, and not in %s: see programsIn", name, simulatedDriver)
	}

	// What is linked statically is named.
	text := strings.Builder{}
	require.NoError(t, notices.Write(&text, nil))
	for program, is := range static {
		assert.Equal(t, is, strings.Contains(text.String(), program), program)
	}
}

// licensed are the modules of a program, by path.
func licensed(t *testing.T, of notices.Build) map[string]bool {
	t.Helper()
	modules, err := notices.OfBuild(t.Context(), "..", of)
	require.NoError(t, err, of.Package)
	found := map[string]bool{}
	for _, m := range modules {
		found[m.Path] = true
	}
	return found
}
