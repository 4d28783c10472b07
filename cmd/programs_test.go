// Package cmd_test checks what the programs are linked with.
package cmd_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs that run on real GPUs contain no simulator, no mocks and nothing of tests.
func TestProductIsLinkedWithoutSimulators(t *testing.T) {
	for program, simulates := range map[string]bool{
		"tranche-kubelet-plugin": false,
		"tranche-controller":     false,
		"kubectl-tranche":        false,
		"tranche-simulator":      true,
		"simulated-nvidia-tools": true,
	} {
		t.Run(program, func(t *testing.T) {
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+program)
			list.Stderr = os.Stderr
			out, err := list.Output()
			require.NoError(t, err)
			var found []string
			for _, path := range strings.Fields(string(out)) {
				if onlySimulated(path) {
					found = append(found, path)
				}
			}
			if simulates {
				assert.NotEmpty(t, found, "this test would not notice a simulator")
			} else {
				assert.Empty(t, found)
			}
		})
	}
}

// kubectl tranche runs on the machines of its users: it contains no package of this module
// that needs Linux.
func TestPluginOfKubectlNeedsNoLinux(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./kubectl-tranche")
	list.Env = append(list.Environ(), "GOOS=windows", "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		imports := strings.Fields(line)
		if !strings.HasPrefix(imports[0], "github.com/tranche-dev/tranche/") {
			continue
		}
		for _, linux := range []string{"golang.org/x/sys/unix", "github.com/google/renameio/v2", "github.com/moby/sys/mountinfo"} {
			assert.NotContains(t, imports[1:], linux, imports[0])
		}
	}
}

// onlySimulated tells whether a package is for simulated machines or for tests.
func onlySimulated(path string) bool {
	for _, prefix := range []string{
		"github.com/tranche-dev/tranche/pkg/simulate", "github.com/NVIDIA/go-nvml/pkg/nvml/mock", "github.com/stretchr/testify",
	} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}
