package cmd_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath       string
	GoFiles, Imports []string
	Module           *struct{ Path string }
}

func (p *listed) ours() bool {
	return p.Module != nil && p.Module.Path == "github.com/tranche-dev/tranche"
}

// dependencies are the packages of kubectl-tranche on a platform.
func dependencies(t *testing.T, system, architecture string) []*listed {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,GoFiles,Imports,Module", "./kubectl-tranche")
	list.Env = append(list.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err, "a package has no files for %s/%s", system, architecture)
	var all []*listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &listed{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else {
			require.NoError(t, err)
		}
		all = append(all, p)
	}
}

// kubectl tranche runs on the machines of its users: it contains no package of this module that
// needs Linux, and the same files for all architectures. make release compiles it for each of them.
func TestPluginOfKubectlNeedsNoLinux(t *testing.T) {
	for _, system := range []string{"darwin", "windows", "linux"} {
		files := map[string][]string{}
		for _, architecture := range []string{"amd64", "arm64"} {
			for _, p := range dependencies(t, system, architecture) {
				if !p.ours() {
					continue
				}
				for _, linux := range []string{"golang.org/x/sys/unix", "github.com/google/renameio/v2", "github.com/moby/sys/mountinfo"} {
					assert.NotContains(t, p.Imports, linux, p.ImportPath)
				}
				if files[p.ImportPath] == nil {
					files[p.ImportPath] = p.GoFiles
				}
				assert.Equal(t, files[p.ImportPath], p.GoFiles, "%s on %s/%s", p.ImportPath, system, architecture)
			}
		}
		assert.Greater(t, len(files), 20)
	}
}
