package nvdriver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// limitedMachine is a machine with a driver that limits memory, and two pods with a container each.
func limitedMachine(t *testing.T) (n *NVML, d nvml.Device, pod, container, other string) {
	t.Helper()
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	n = openLibrary(t, inv, memory.TempDir(t), "615")
	pod, other = filepath.Join(Groups(n.root), "kubepods/poda"), filepath.Join(Groups(n.root), "kubepods/podb")
	container = filepath.Join(pod, "c")
	require.NoError(t, os.MkdirAll(container, 0o755))
	require.NoError(t, os.MkdirAll(other, 0o755))
	return n, handleOf(t, n, 0), pod, container, other
}

func (n *NVML) allocate(d nvml.Device, group string, pid, mib int) error {
	p := Process{GPU: pciOf(d), PID: pid, Group: group}
	p.MemoryMiB = mib
	return Allocate(n.root, p)
}

func TestMemoryLimits(t *testing.T) {
	n, d, pod, container, other := limitedMachine(t)
	total, _ := model(t, d).Memory()
	for name, c := range map[string]struct {
		group      string
		soft, hard uint64
		want       nvml.Return
	}{
		"soft above hard":          {pod, 2 * gib, gib, nvml.ERROR_INVALID_ARGUMENT},
		"more than the GPU has":    {pod, 0, total + 1, nvml.ERROR_INVALID_ARGUMENT},
		"guaranteed more than all": {pod, total + 1, noLimit, nvml.ERROR_INVALID_ARGUMENT},
		"no such group":            {pod + "x", 0, gib, nvml.ERROR_OPERATING_SYSTEM},
		"a folder elsewhere":       {n.root, 0, gib, nvml.ERROR_OPERATING_SYSTEM},
		"a relative path":          {"kubepods", 0, gib, nvml.ERROR_OPERATING_SYSTEM},
		"the root":                 {Groups(n.root), 0, gib, nvml.ERROR_NOT_SUPPORTED},
	} {
		assert.Equal(t, c.want, d.SetMemoryLimits_v1(c.group, c.soft, c.hard), name)
	}
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetMemoryLimits_v1(pod)), "none")
	assert.Equal(t, nvml.ERROR_OPERATING_SYSTEM, second(d.GetMemoryLimits_v1(pod+"x")))

	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(pod, 0, gib))
	require.NoError(t, n.allocate(d, container, 1, 600))
	require.ErrorIs(t, n.allocate(d, container, 2, 425), ErrOutOfMemory, "both processes together")
	require.ErrorIs(t, n.allocate(d, filepath.Join(container, "child"), 2, 425), ErrOutOfMemory)
	require.NoError(t, n.allocate(d, container, 2, 424))
	require.NoError(t, n.allocate(d, other, 3, 2000), "another pod")
	require.NoError(t, n.allocate(handleOf(t, n, 1), container, 4, 2000), "another GPU")
	got, ret := d.GetMemoryLimits_v1(container)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.MemoryLimits_v1{NameSpace: container, HardLimit: gib, CurrentUsed: gib}, got, "that of the nearest group")
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, d.SetMemoryLimits_v1(pod, 0, gib-1), "less than is used")

	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(container, 0, 2*gib))
	require.NoError(t, n.allocate(d, container, 5, 500), "limits do not nest")

	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(other, 0, 2*gib))
	require.NoError(t, os.Rename(other, other+"-gone"))
	require.NoError(t, os.Mkdir(other, 0o755))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetMemoryLimits_v1(other)), "another group of the same name")
	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(pod, 0, noLimit))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetMemoryLimits_v1(pod)))

	require.NoError(t, ReloadDriver(n.root))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetMemoryLimits_v1(container)))
	migOn(t, d)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, d.SetMemoryLimits_v1(pod, 0, gib))
}

// With the kernel's controller, limits nest, and a group for which it is not enabled cannot have one.
func TestMemoryLimitsOfTheKernel(t *testing.T) {
	n, d, pod, container, _ := limitedMachine(t)
	enable := func(group, file string) {
		require.NoError(t, os.WriteFile(filepath.Join(group, file), nil, 0o600))
	}
	enable(Groups(n.root), dmemCapacity)
	assert.Equal(t, nvml.ERROR_NOT_FOUND, d.SetMemoryLimits_v1(pod, 0, gib))
	enable(pod, dmemMax)
	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(pod, 0, gib))
	got, _ := d.GetMemoryLimits_v1(container)
	assert.EqualValues(t, gib, got.HardLimit, "inherited")
	enable(container, dmemMax)
	got, _ = d.GetMemoryLimits_v1(container)
	assert.Equal(t, noLimit, got.HardLimit, "a value of its own")
	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(container, 0, 2*gib))
	require.ErrorIs(t, n.allocate(d, container, 1, 1025), ErrOutOfMemory, "the pod's limit holds, too")
	require.NoError(t, n.allocate(d, container, 1, 1024))
	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(pod, 0, 512*mib))
	got, _ = d.GetMemoryLimits_v1(pod)
	assert.EqualValues(t, gib, got.HardLimit, "less than is used has no effect, and dmem does not tell")
}

// Limits can be made to fail, and an older driver does not have them.
func TestMemoryLimitsThatFail(t *testing.T) {
	n, d, pod, _, _ := limitedMachine(t)
	require.NoError(t, SetFaults(n.root, Faults{Calls: []CallFault{
		{Call: "SetMemoryLimits", GPU: "*", Error: Return(nvml.ERROR_NO_PERMISSION)}, {Call: "GetMemoryLimits", GPU: "*", Error: Return(nvml.ERROR_UNKNOWN)},
	}}))
	assert.Equal(t, nvml.ERROR_NO_PERMISSION, d.SetMemoryLimits_v1(pod, 0, gib))
	assert.Equal(t, nvml.ERROR_UNKNOWN, second(d.GetMemoryLimits_v1(pod)))
	require.NoError(t, n.Extensions().LookupSymbol("nvmlDeviceSetMemoryLimits_v1"))

	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	older := openLibrary(t, inv, memory.TempDir(t), "610")
	require.Error(t, older.Extensions().LookupSymbol("nvmlDeviceSetMemoryLimits_v1"))
	assert.Equal(t, nvml.ERROR_FUNCTION_NOT_FOUND, handleOf(t, older, 0).SetMemoryLimits_v1(pod, 0, gib))
	assert.Equal(t, nvml.ERROR_FUNCTION_NOT_FOUND, second(handleOf(t, older, 0).GetMemoryLimits_v1(pod)))
}
