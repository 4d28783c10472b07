package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const dockerfile = "../deployments/container/Dockerfile"

// The image of the Dockerfile is started and labeled as that of make release.
func TestDockerfile(t *testing.T) {
	lines := strings.ReplaceAll(read(t, dockerfile), "\\\n", " ")
	_, last, found := strings.Cut(lines, "\nFROM scratch\n")
	require.True(t, found)
	last = strings.NewReplacer("${VERSION}", "0.1.0", "${REVISION}", "abc").Replace(last)

	d := newDist(t)
	require.NoError(t, d.write(t.Context()))
	d.of.AppVersion = "0.1.0"
	built, err := d.sources.releaseImage(t.Context(), "", filepath.Join(d.programs, "linux-amd64"), "amd64", d.labels(""))
	require.NoError(t, err)
	file, err := built.ConfigFile()
	require.NoError(t, err)

	labels := map[string]string{}
	for _, m := range regexp.MustCompile(`(org\.opencontainers\.\S+)="(.*?)"`).FindAllStringSubmatch(last, -1) {
		labels[m[1]] = m[2]
	}
	assert.Equal(t, file.Config.Labels, labels)
	assert.Equal(t, file.Config.Env, strings.Fields(argument(t, last, "ENV")))
	var entrypoint []string
	require.NoError(t, json.Unmarshal([]byte(argument(t, last, "ENTRYPOINT")), &entrypoint))
	assert.Equal(t, file.Config.Entrypoint, entrypoint)

	// The commands of its first stage are targets of the Makefile, and one of this program.
	run := regexp.MustCompile(`make (\S+) (\S+) .*bin/release (root .*?) &&`).FindStringSubmatch(argument(t, lines, "RUN"))
	require.Len(t, run, 4)
	for _, target := range run[1:3] {
		assert.Contains(t, read(t, "..", "Makefile"), "\n"+target+":")
	}
	out := filepath.Join(t.TempDir(), "image.tar")
	command := newRootCommand()
	command.SetArgs(append(strings.Fields(strings.NewReplacer("root ", "", "/programs", filepath.Join(d.programs, "linux-amd64"),
		"${TARGETARCH}", "amd64", "/image.tar", out).Replace(run[3])), "--sources", string(d.sources)))
	require.NoError(t, command.Execute())
	content, err := exec.CommandContext(t.Context(), "tar", "-tf", out).Output()
	require.NoError(t, err)
	for _, program := range programs {
		assert.Contains(t, string(content), "usr/bin/"+program+"\n")
	}
}

// argument is what follows an instruction.
func argument(t *testing.T, text, instruction string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + instruction + ` +(.*)$`).FindStringSubmatch(text)
	require.NotNil(t, m, instruction)
	return m[1]
}

// What the programs are built from reaches the first stage of the Dockerfile.
func TestDockerfileHasTheSources(t *testing.T) {
	var folders []string
	for line := range strings.Lines(read(t, dockerfile+".dockerignore")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			_, err := os.Stat(filepath.Join("..", path))
			require.NoError(t, err)
			folders = append(folders, path)
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./cmd/...")
	list.Dir = ".."
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	for _, used := range strings.Fields(string(out)) {
		folder, _, _ := strings.Cut(strings.TrimPrefix(used, "github.com/tranche-dev/tranche/"), "/")
		assert.Contains(t, folders, folder, used)
	}
	for _, file := range []string{"LICENSE", "Makefile", "go.mod", "go.sum", "release", "deployments", "test/compiler.sh"} {
		assert.Contains(t, folders, file)
	}
}
