package nvdriver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	_ "github.com/tranche-dev/tranche/test/simulator/plainnodes"
)

// quietLogger keeps nvcdi's warnings for the assertions.
type quietLogger struct{ warnings []string }

func (*quietLogger) Debugf(string, ...any) {}
func (*quietLogger) Infof(string, ...any)  {}
func (*quietLogger) Tracef(string, ...any) {}
func (l *quietLogger) Warning(args ...any) { l.warnings = append(l.warnings, fmt.Sprint(args...)) }
func (l *quietLogger) Errorf(f string, a ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(f, a...))
}
func (l *quietLogger) Warningf(f string, a ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(f, a...))
}

func needNodes(t *testing.T, n *NVML) {
	t.Helper()
	if !n.HasDeviceNodes() {
		t.Skip("needs root: device nodes are made with mknod, and nvcdi takes nothing else for a device")
	}
}

func TestNVCDISeesTheDriver(t *testing.T) {
	n := machine(t, "h100x8")
	needNodes(t, n)
	logger := &quietLogger{}
	lib, err := nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml), nvcdi.WithNvmlLib(n), nvcdi.WithLogger(logger),
		nvcdi.WithDriverRoot(n.DriverRoot()), nvcdi.WithDevRoot(n.DriverRoot()),
		nvcdi.WithNVIDIACDIHookPath("/opt/tranche/nvidia-cdi-hook"),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
	)
	require.NoError(t, err)

	common, err := lib.GetCommonEdits()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}, paths(common.DeviceNodes))
	for _, x := range common.DeviceNodes {
		assert.Equal(t, filepath.Join(n.DriverRoot(), x.Path), x.HostPath)
	}
	mounts := map[string]string{}
	for _, m := range common.Mounts {
		mounts[m.ContainerPath] = m.HostPath
	}
	for _, path := range []string{
		"/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04",
		"/usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.580.159.04",
		"/lib/firmware/nvidia/580.159.04/gsp_ga10x.bin", "/usr/bin/nvidia-smi",
	} {
		assert.Equal(t, filepath.Join(n.DriverRoot(), path), mounts[path], path)
	}
	var hooks []string
	for _, h := range common.Hooks {
		hooks = append(hooks, strings.Join(h.Args, " "))
	}
	assert.Contains(t, strings.Join(hooks, "\n"), "libcuda.so.580.159.04::/usr/lib/x86_64-linux-gnu/libcuda.so.1", "named inside the library")
	// Warnings are left about graphics, sockets of daemons and the library
	// cache, and none about what a container computes with.
	for _, w := range logger.warnings {
		assert.NotContains(t, w, "soname")
		assert.NotContains(t, w, "libcuda")
		assert.NotContains(t, strings.ReplaceAll(w, n.DriverRoot(), ""), "/dev/")
	}

	uuid, ret := handleOf(t, n, 3).GetUUID()
	require.Equal(t, nvml.SUCCESS, ret)
	devices, err := lib.GetDeviceSpecsByID(uuid)
	require.NoError(t, err)
	require.Len(t, devices, 1)
	assert.Equal(t, []string{"/dev/nvidia3"}, paths(devices[0].ContainerEdits.DeviceNodes))
}

func paths(nodes []*specs.DeviceNode) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Path)
	}
	return all
}

func TestSimulatedSMI(t *testing.T) {
	n := machine(t, "l4x4")
	data, err := os.ReadFile(filepath.Join(n.DriverRoot(), "usr/bin/nvidia-smi"))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(data), "#!/bin/sh\n"))
	assert.Contains(t, string(data), "580.159.04 (simulated)")
}
