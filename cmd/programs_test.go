// Package cmd_test checks what the programs are linked with, and that kubectl-tranche is for the
// machines of its users.
package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs that run on real GPUs contain no simulator, no mocks and nothing of tests.
func TestProductIsLinkedWithoutSimulators(t *testing.T) {
	const simulators = "../test/simulator/cmd/"
	for program, simulates := range map[string]bool{
		"./tranche-kubelet-plugin":            false,
		"./tranche-controller":                false,
		"./tranche-web":                       false,
		"./tranche-hook":                      false,
		"./kubectl-tranche":                   false,
		simulators + "simulated-driver":       true,
		simulators + "simulated-nvidia-tools": true,
	} {
		t.Run(filepath.Base(program), func(t *testing.T) {
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", program)
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

// onlySimulated tells whether a package is for simulated machines or for tests.
func onlySimulated(path string) bool {
	for _, prefix := range []string{
		"github.com/tranche-dev/tranche/test/simulator", "github.com/NVIDIA/go-nvml/pkg/nvml/mock", "github.com/stretchr/testify",
	} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}
