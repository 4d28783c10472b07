package hardware

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// limitedGroup is the control group of this check, with one below it as containers can make them.
const limitedGroup = "/sys/fs/cgroup/tranche-hardware-test"

// checkKernelLimits: the driver (R615 or later) keeps the programs of a control group, and of those below
// it, to the group's memory, all together, and does so no longer once the limit is removed. What is read
// back is what was set.
func checkKernelLimits(t *testing.T, m *machine) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make control groups and limit their memory")
	}
	if m.cuda == "" || m.simulated {
		t.Skip("no libcuda.so.1 beside NVML's library, or a simulated one, which knows no control groups")
	}
	g := freeGPU(t, m)
	if _, err := m.driver.MemoryLimit(m.ctx(t), g.PCIAddress, filepath.Dir(limitedGroup)); errors.Is(err, gpu.ErrNotSupported) {
		t.Skip(err)
	}
	below := filepath.Join(limitedGroup, "container")
	require.NoError(t, os.MkdirAll(below, 0o755))
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return os.Remove(below) == nil && os.Remove(limitedGroup) == nil }, patience, time.Second, "the groups are in use")
	})
	require.NoError(t, m.driver.SetMemoryLimit(m.ctx(t), g.PCIAddress, limitedGroup, gpu.MemoryLimit{Bytes: limitB}), "on cgroup v1 this fails, and shares have no such limit")
	now, err := m.driver.MemoryLimit(m.ctx(t), g.PCIAddress, limitedGroup)
	require.NoError(t, err)
	assert.EqualValues(t, limitB, now.Bytes)

	seen := "CUDA_VISIBLE_DEVICES=" + g.UUID
	one, endOne := startClient(t, m, order{Group: below, Most: limitB / 2}, seen)
	assert.False(t, one.Refused)
	two, endTwo := startClient(t, m, order{Group: below, Most: limitB}, seen)
	assert.True(t, two.Refused, "both together have no more than one")
	assert.LessOrEqual(t, one.Allocated+two.Allocated, int64(limitB))
	now, err = m.driver.MemoryLimit(m.ctx(t), g.PCIAddress, limitedGroup)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, now.Used, one.Allocated+two.Allocated)
	_ = m.driver.SetMemoryLimit(m.ctx(t), g.PCIAddress, limitedGroup, gpu.MemoryLimit{Bytes: limitB / 4}) // not all drivers tell
	now, err = m.driver.MemoryLimit(m.ctx(t), g.PCIAddress, limitedGroup)
	require.NoError(t, err)
	assert.EqualValues(t, limitB, now.Bytes, "less than is used")
	endOne()
	endTwo()

	require.NoError(t, m.driver.SetMemoryLimit(m.ctx(t), g.PCIAddress, limitedGroup, gpu.MemoryLimit{}))
	free, end := startClient(t, m, order{Group: below, Most: limitB + beyond}, seen)
	assert.False(t, free.Refused, "the limit was removed")
	end()
}
