package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

func TestCapabilityFiles(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, "proc", path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	f := New(Config{ProcRoot: root})
	const monitor = "driver/nvidia/capabilities/mig/monitor"
	write(monitor, "DeviceFileMode: 292\n")
	_, err := f.monitorNode()
	assert.ErrorContains(t, err, "proc/devices: no such file")
	_, err = f.instanceNodes(0, 13, 0)
	assert.ErrorContains(t, err, "proc/devices: no such file")

	write("devices", "Character devices:\n195 nvidia\n\nBlock devices:\n239 nvidia-caps\n")
	_, err = f.instanceNodes(0, 13, 0)
	assert.ErrorContains(t, err, "has no nvidia-caps", "a block device is no answer")

	write("devices", "Character devices:\n  1 mem\n195 nvidia\n239 nvidia-caps\n\nBlock devices:\n  8 sd\n")
	_, err = f.instanceNodes(0, 13, 0)
	assert.ErrorContains(t, err, "gpu0/mig/gi13/access: no such file")
	_, err = f.monitorNode()
	assert.ErrorContains(t, err, "no DeviceFileMinor")

	write("driver/nvidia/capabilities/gpu0/mig/gi13/access", "DeviceFileMode: 292\n")
	_, err = f.instanceNodes(0, 13, 0)
	assert.ErrorContains(t, err, "no DeviceFileMinor")

	write("driver/nvidia/capabilities/gpu0/mig/gi13/access", "DeviceFileMinor: 120\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
	write("driver/nvidia/capabilities/gpu0/mig/gi13/ci0/access", "DeviceFileMinor: 121\n")
	nodes, err := f.instanceNodes(0, 13, 0)
	require.NoError(t, err)
	mode := os.FileMode(0o444)
	assert.Equal(t, []*cdispecs.DeviceNode{
		{Path: "/dev/nvidia-caps/nvidia-cap120", Type: "c", Major: 239, Minor: 120, FileMode: &mode, Permissions: "rw"},
		{Path: "/dev/nvidia-caps/nvidia-cap121", Type: "c", Major: 239, Minor: 121, Permissions: "rw"},
	}, nodes)
}
