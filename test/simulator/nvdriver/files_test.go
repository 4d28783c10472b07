package nvdriver

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// rdev returns the numbers of a character device.
func rdev(t *testing.T, path string) (major, minor uint32) {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	require.Equal(t, uint32(unix.S_IFCHR), st.Mode&unix.S_IFMT, "%s is a character device", path)
	return unix.Major(st.Rdev), unix.Minor(st.Rdev)
}

func TestDeviceNodes(t *testing.T) {
	n := machine(t, "h100x8")
	needNodes(t, n)
	st, err := n.store.Read()
	require.NoError(t, err)
	dev := filepath.Join(n.root, "driver/dev")
	for name, want := range map[string][2]int{
		"nvidia0": {st.Majors.Frontend, 0}, "nvidia7": {st.Majors.Frontend, 7},
		"nvidiactl": {st.Majors.Frontend, 255}, "nvidia-modeset": {st.Majors.Frontend, 254},
		"nvidia-uvm": {st.Majors.UVM, 0}, "nvidia-uvm-tools": {st.Majors.UVM, 1},
		"nvidia-caps/nvidia-cap1": {st.Majors.Caps, 1}, "nvidia-caps/nvidia-cap2": {st.Majors.Caps, 2},
	} {
		major, minor := rdev(t, filepath.Join(dev, name))
		assert.Equal(t, want, [2]int{int(major), int(minor)}, name)
	}
	info, err := os.Stat(filepath.Join(dev, "nvidia0"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o666), info.Mode().Perm())
	_, err = os.Open(filepath.Join(dev, "nvidia0"))
	assert.ErrorIs(t, err, unix.ENXIO, "no driver behind it")
}

func TestMajorsAreKept(t *testing.T) {
	root := memory.TempDir(t)
	devices := func() string {
		machineIn(t, "l4x4", root)
		return content(t, root, "proc/devices")
	}
	first := devices()
	assert.Regexp(t, `^Character devices:\n\d+ nvidia-frontend\n\d+ nvidia-uvm\n\d+ nvidia-caps\n\nBlock devices:\n$`, first)
	assert.Equal(t, first, devices())
}

func TestProcFiles(t *testing.T) {
	n := machine(t, "h100x8")
	uuid, _ := handleOf(t, n, 2).GetUUID()
	information := content(t, n.root, "proc/driver/nvidia/gpus/0000:52:00.0/information")
	assert.Contains(t, information, "GPU UUID: \t "+uuid+"\n")
	assert.Contains(t, information, "Device Minor: \t 2\n")
	assert.Contains(t, content(t, n.root, "proc/driver/nvidia/version"), "580.159.04")
	assert.Equal(t, "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n", content(t, n.root, "proc/driver/nvidia/capabilities/mig/config"))
	assert.Equal(t, "DeviceFileMinor: 2\nDeviceFileMode: 292\nDeviceFileModify: 1\n", content(t, n.root, "proc/driver/nvidia/capabilities/mig/monitor"))
	entries, err := os.ReadDir(filepath.Join(n.root, "proc/driver/nvidia/capabilities/gpu7/mig"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestCapabilitiesFollowInstances(t *testing.T) {
	n := machine(t, "a100-40x8")
	d := handleOf(t, n, 1)
	caps := filepath.Join(n.root, "proc/driver/nvidia/capabilities/gpu1/mig")
	node := func(minor int) string {
		return filepath.Join(n.root, fmt.Sprintf("driver/dev/nvidia-caps/nvidia-cap%d", minor))
	}
	minors := content(t, n.root, "proc/driver/nvidia-caps/mig-minors")

	gi := makeGI(t, d, "1g.5gb", 2)
	assert.Equal(t, "DeviceFileMinor: 219\nDeviceFileMode: 292\nDeviceFileModify: 1\n", content(t, caps, "gi9/access"))
	assert.Contains(t, minors, "\ngpu1/gi9/access 219\n")
	assert.NoDirExists(t, filepath.Join(caps, "gi9/ci0"))
	ci := makeCI(t, gi)
	assert.Contains(t, content(t, caps, "gi9/ci0/access"), "DeviceFileMinor: 220\n")
	assert.Contains(t, minors, "\ngpu1/gi9/ci0/access 220\n")
	if n.HasDeviceNodes() {
		_, minor := rdev(t, node(219))
		assert.Equal(t, uint32(219), minor)
		_, minor = rdev(t, node(220))
		assert.Equal(t, uint32(220), minor)
	}

	require.Equal(t, nvml.SUCCESS, ci.Destroy())
	assert.NoDirExists(t, filepath.Join(caps, "gi9/ci0"))
	assert.NoFileExists(t, node(220))
	assert.FileExists(t, node(219))
	require.Equal(t, nvml.SUCCESS, gi.Destroy())
	assert.NoDirExists(t, filepath.Join(caps, "gi9"))
	assert.NoFileExists(t, node(219))
	assert.DirExists(t, caps)
}

// TestFilesAreRepairedAtTheStart: whatever a killed process left, New makes
// the files match the state, and leaves those alone that do.
func TestFilesAreRepairedAtTheStart(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	makeCI(t, makeGI(t, d, "1g.5gb", 0))
	caps := filepath.Join(n.root, "proc/driver/nvidia/capabilities/gpu0/mig")
	kept, err := os.Stat(filepath.Join(caps, "gi7/access"))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(caps, "gi7/ci0")))
	require.NoError(t, os.Remove(filepath.Join(n.root, "driver/dev/nvidia3")))
	require.NoError(t, disk.WriteFile(filepath.Join(caps, "gi8/ci0/access"), "left over"))
	require.NoError(t, disk.WriteFile(filepath.Join(caps, "gi7/ci5/access"), "left over"))
	require.NoError(t, disk.WriteFile(filepath.Join(n.root, "driver/dev/nvidia-caps/nvidia-cap75"), ""))

	machineIn(t, "a100-40x8", n.root)
	assert.FileExists(t, filepath.Join(caps, "gi7/ci0/access"))
	assert.NoDirExists(t, filepath.Join(caps, "gi8"))
	assert.NoDirExists(t, filepath.Join(caps, "gi7/ci5"))
	assert.NoFileExists(t, filepath.Join(n.root, "driver/dev/nvidia-caps/nvidia-cap75"))
	assert.FileExists(t, filepath.Join(n.root, "driver/dev/nvidia3"))
	now, err := os.Stat(filepath.Join(caps, "gi7/access"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(kept, now))
	assert.Equal(t, kept.ModTime(), now.ModTime())
}

func TestDiskFullIsAnAnswer(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	caps := filepath.Join(n.root, "proc/driver/nvidia/capabilities/gpu0/mig")
	require.NoError(t, os.RemoveAll(caps))
	require.NoError(t, os.WriteFile(caps, nil, 0o600)) // as impossible to write below as a full disk
	_, ret := tryGI(t, d, "1g.5gb", 0)
	assert.Equal(t, nvml.ERROR_UNKNOWN, ret)
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(d.GetGpuInstanceById(7)), "nothing was created")
	require.NoError(t, os.Remove(caps))
	makeGI(t, d, "1g.5gb", 0)
}

func TestTopologyAttributes(t *testing.T) {
	root := memory.TempDir(t)
	machineIn(t, "h100x8", root)
	sys := deviceattribute.WithFSFromRoot(filepath.Join(root, "sys"))
	for pci, want := range map[string]struct {
		root string
		numa int64
	}{
		"0000:1b:00.0": {"pci0000:10", 0}, "0000:61:00.0": {"pci0000:60", 0},
		"0000:9d:00.0": {"pci0000:90", 1}, "0000:df:00.0": {"pci0000:d0", 1}, "0000:d1:00.0": {"pci0000:d0", 1},
	} {
		attribute, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(pci, sys)
		require.NoError(t, err)
		assert.Equal(t, want.root, *attribute.Value.StringValue, pci)
		attribute, err = deviceattribute.GetNUMANodeAttributeByPCIBusID(pci, deviceattribute.ScalarAttribute, sys)
		require.NoError(t, err)
		assert.Equal(t, want.numa, *attribute.Value.IntValue, pci)
	}
	for file, want := range map[string]string{"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n", "numa_node": "0\n"} {
		assert.Equal(t, want, content(t, root, "sys/bus/pci/devices/0000:1b:00.0/"+file))
	}
}

// mig-parted and gpu-feature-discovery read these of every GPU.
func TestPCIRegions(t *testing.T) {
	root := memory.TempDir(t)
	machineIn(t, "h100x8", root)
	for _, pci := range []string{"0000:1b:00.0", "0000:df:00.0"} {
		dir := "sys/bus/pci/devices/" + pci + "/"
		lines := strings.Split(strings.TrimSuffix(content(t, root, dir+"resource"), "\n"), "\n")
		require.Len(t, lines, 13)
		config := []byte(content(t, root, dir+"config"))
		require.Len(t, config, 4096)
		assert.Equal(t, []byte{0xde, 0x10, 0x30, 0x23}, config[:4])
		assert.Equal(t, []byte{0xa1, 0x00, 0x02, 0x03}, config[8:12])
		sizes := map[int]uint64{}
		for i, line := range lines {
			var start, end, flags uint64
			_, err := fmt.Sscanf(line, "0x%016x 0x%016x 0x%016x", &start, &end, &flags)
			require.NoError(t, err, line)
			if end == 0 {
				continue
			}
			sizes[i] = end - start + 1
			assert.Equal(t, uint64(0x14220c), flags)
			assert.Equal(t, start, binary.LittleEndian.Uint64(config[0x10+4*i:])&^0xf, "region %d", i)
			assert.Zero(t, start%sizes[i], "aligned")
		}
		assert.Equal(t, map[int]uint64{0: 16 << 20, 2: 128 << 30, 4: 32 << 20}, sizes)
		var capabilities []byte
		require.NotZero(t, config[6]&0x10)
		for at := config[0x34]; at != 0; at = config[at+1] {
			capabilities = append(capabilities, config[at])
		}
		assert.Equal(t, []byte{0x01, 0x10}, capabilities, "power management and PCI Express")
	}
}
