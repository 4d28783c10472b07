package sysfs_test

import (
	"io/fs"
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

const address = "0000:05:00.0"

// describes makes xcp_config choose what the driver says of a mode.
func describes(files *amdtest.Tree, memory map[string]string) {
	files.Set(path.Join(device, sysfs.ConfigModes), "SPX, DPX, QPX, CPX")
	files.Set(path.Join(device, sysfs.SelectorFile), "SPX")
	files.Set(path.Join(device, sysfs.ConfigMemory), memory["SPX"])
	files.OnWrite = func(name, text string) error {
		if path.Base(name) == path.Base(sysfs.SelectorFile) {
			files.Set(path.Join(device, sysfs.ConfigMemory), memory[text])
		}
		return nil
	}
}

func TestModes(t *testing.T) {
	memories := path.Join(device, sysfs.AvailableMemoryFile)
	all := []string{"SPX", "DPX", "QPX", "CPX"}
	byRule := gpu.Modes{Compute: "CPX", Computes: all, Memory: "NPS1", Memories: []string{"NPS1", "NPS4"},
		Legal: map[string][]string{"NPS1": all, "NPS4": {"QPX", "CPX"}}}
	one := gpu.Modes{Compute: "CPX", Computes: all, Memory: "NPS1", Memories: []string{"NPS1"}, Legal: map[string][]string{"NPS1": all}}
	for name, test := range map[string]struct {
		change func(files *amdtest.Tree)
		want   gpu.Modes
	}{
		"the driver lists no memory modes": {func(*amdtest.Tree) {}, one},
		"by the kernel's rule":             {func(f *amdtest.Tree) { f.Set(memories, "NPS1, NPS4") }, byRule},
		"as the driver describes them": {func(f *amdtest.Tree) {
			f.Set(memories, "NPS1, NPS4")
			describes(f, map[string]string{"SPX": "NPS1", "DPX": "NPS1, NPS4", "QPX": "NPS4", "CPX": "NPS1, NPS4"})
		}, gpu.Modes{Compute: "CPX", Computes: all, Memory: "NPS1", Memories: []string{"NPS1", "NPS4"},
			Legal: map[string][]string{"NPS1": all, "NPS4": {"DPX", "QPX", "CPX"}}}},
		"the driver takes no request": {func(f *amdtest.Tree) {
			f.Set(memories, "NPS1, NPS4")
			f.Infos[path.Join(device, sysfs.MemoryFile)] = sysfs.Info{Mode: 0o444}
		}, one},
		"the list lacks the mode that it is in": {func(f *amdtest.Tree) { f.Set(memories, "NPS2, NPS4") }, one},
		"a driver without memory modes":         {func(f *amdtest.Tree) { f.Remove(path.Join(device, sysfs.MemoryFile)) }, one},
		"a mode that the rule does not have": {func(f *amdtest.Tree) {
			f.Replace(amdtest.MI300XDPX())
			f.Set(path.Join(device, sysfs.MemoryFile), "NPS4")
			f.Remove(path.Join(device, sysfs.AvailableComputeFile))
		}, gpu.Modes{Compute: "DPX", Computes: []string{"DPX", "QPX", "CPX"}, Memory: "NPS4", Memories: []string{"NPS4"}, Legal: map[string][]string{"NPS4": {"DPX", "QPX", "CPX"}}}},
		"the rule for a newer chip": {func(f *amdtest.Tree) {
			g := amdtest.MI300XDPX()
			g.Memory, g.Nodes[0].GFX = "NPS2", 90500
			f.Replace(g)
			f.Remove(path.Join(device, sysfs.AvailableComputeFile))
		}, gpu.Modes{Compute: "DPX", Computes: []string{"DPX", "QPX", "CPX"}, Memory: "NPS2", Memories: []string{"NPS2"}, Legal: map[string][]string{"NPS2": {"DPX", "QPX", "CPX"}}}},
		"other memory modes of a newer chip": {func(f *amdtest.Tree) {
			g := amdtest.MI300XSPX()
			g.Nodes[0].GFX = 90500
			f.Replace(g)
			f.Set(memories, "NPS1, NPS2")
		}, gpu.Modes{Compute: "SPX", Computes: all, Memory: "NPS1", Memories: []string{"NPS1", "NPS2"}, Legal: map[string][]string{"NPS1": all, "NPS2": {"DPX", "QPX", "CPX"}}}},
		"without a KFD node": {func(f *amdtest.Tree) {
			g := amdtest.MI300XCPX()
			g.Nodes = nil
			f.Replace(g)
			f.Remove(path.Join(device, sysfs.AvailableComputeFile))
		}, one},
		"a GPU that cannot be partitioned": {func(f *amdtest.Tree) {
			f.Replace(amdtest.MI300XSPX())
			f.Remove(path.Join(device, sysfs.ComputeFile))
		}, gpu.Modes{}},
	} {
		files, m := machineOf(t, amdtest.MI300XCPX())
		test.change(files)
		got, err := m.Modes(t.Context(), address)
		require.NoError(t, err, name)
		assert.Equal(t, test.want, got, name)
	}
}

// A GPU that amdgpu has let go of has files as before, which mean nothing.
func TestModesOfAGPUThatIsNotBound(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX())
	files.Remove(path.Join(sysfs.DriverDirs[0], address))
	_, err := m.Modes(t.Context(), address)
	require.NoError(t, err, "the other folder has it")
	files.Remove(path.Join(sysfs.DriverDirs[1], address))
	_, err = m.Modes(t.Context(), address)
	assert.Equal(t, gpu.CauseLost, gpu.CauseOf(err))
	require.ErrorIs(t, err, fs.ErrNotExist)

	for _, dir := range sysfs.DriverDirs { // kernels have one of them
		files.Set(path.Join(dir, address)+"/", "")
		all, err := m.Addresses(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{address}, all)
		files.Remove(dir)
	}
	_, err = m.Addresses(t.Context())
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// What the kernel answers for a GPU in a reset, or off the bus, is told in these words.
func TestHealthByTheKernelsError(t *testing.T) {
	for errno, want := range map[error]gpu.Cause{unix.EPERM: gpu.CauseReset, unix.ENODEV: gpu.CauseLost, unix.EIO: gpu.CauseCheck} {
		for _, name := range []string{sysfs.ComputeFile, sysfs.MemoryFile, sysfs.AvailableComputeFile, sysfs.AvailableMemoryFile, sysfs.VRAMTotalFile, "unique_id", "subsystem_device"} {
			files := complete("0x74a1", true)
			files.Refuse("read "+path.Join(device, name), errno)
			_, err := sysfs.New(files, klog.Logger{}).Inventory(t.Context())
			err = amdtest.Broken(t, err, address)
			assert.Equal(t, want, gpu.CauseOf(err), "%s: %v", name, err)
			assert.ErrorIs(t, err, errno)
		}
	}
}
