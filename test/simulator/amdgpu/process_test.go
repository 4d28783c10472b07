package amdgpu

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// TestProcessKilledDuringSwitch runs its binary a second time, on the root and for the mode that
// are in the environment.
const (
	rootVariable = "AMDGPU_TEST_ROOT"
	modeVariable = "AMDGPU_TEST_MODE"
)

// again is this test in a process of its own.
func again(t *testing.T, root, mode string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), rootVariable+"="+root, modeVariable+"="+mode)
	return cmd
}

// TestProcessKilledDuringSwitch: before the switch nothing has happened, after it
// the GPU is in the new mode, and it can be switched again.
func TestProcessKilledDuringSwitch(t *testing.T) {
	if root := os.Getenv(rootVariable); root != "" {
		_ = switchTo(machineIn(t, "mi300x8", root), first, os.Getenv(modeVariable))
		return
	}
	for when, want := range map[string]string{"before": "SPX", "after": "CPX"} {
		root := memory.TempDir(t)
		k := machineIn(t, "mi300x8", root)
		set(t, k, Faults{Writes: []WriteFault{{GPU: first, File: "current_compute_partition", Hang: when, Times: 1}}})
		cmd := again(t, root, "CPX")
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			st, err := k.store.Read()
			return err == nil && len(st.FaultCounts) == 1 && st.FaultCounts[0] == 1 && mode(t, k, first) == want
		}, time.Minute, 5*time.Millisecond, when)
		require.NoError(t, cmd.Process.Signal(unix.SIGKILL))
		require.Error(t, cmd.Wait())
		assert.Equal(t, want, mode(t, k, first), when)
		assert.NoError(t, switchTo(k, first, "DPX"), "%s: the fault is used up", when)
		assert.Len(t, gpuNodes(t, k, first), 2)
	}
}
