package hardware_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// A driver whose GPUs have no modes refuses every change of one, and says which GPU lacks what.
func TestBasic(t *testing.T) {
	const address = "0000:05:00.0"
	ctx, b := t.Context(), hardware.Basic{}
	limitOf := func() error { _, err := b.MemoryLimit(ctx, address, "/pod"); return err }
	usage := func() error { _, err := b.Usage(ctx, address); return err }
	for want, err := range map[string]error{
		"GPU gpu-0000-05-00-0 has no MIG mode: " + gpu.ErrNotSupported.Error():                         b.SetMIG(ctx, address, true, false),
		"GPU gpu-0000-05-00-0 has no compute partition mode: " + gpu.ErrNotSupported.Error():           b.SetComputePartition(ctx, address, "CPX"),
		"the GPUs have no memory partition mode: " + gpu.ErrNotSupported.Error():                       b.SetMemoryPartition(ctx, "NPS4"),
		"GPU gpu-0000-05-00-0 has no limit of memory by control group: " + gpu.ErrNotSupported.Error(): b.SetMemoryLimit(ctx, address, "/pod", gpu.MemoryLimit{}),
		"measure GPU gpu-0000-05-00-0: " + gpu.ErrNotSupported.Error():                                 usage(),
	} {
		require.EqualError(t, err, want)
		assert.ErrorIs(t, err, gpu.ErrNotSupported)
	}
	require.ErrorIs(t, limitOf(), gpu.ErrNotSupported)
	for name, err := range map[string]error{
		"time slice": b.SetTimeSlice(ctx, address, gpu.TimeSlice("")), "compute mode": b.SetComputeMode(ctx, address, ""), "release": b.Release(ctx),
	} {
		assert.NoError(t, err, name)
	}
	modes, err := b.Modes(ctx, address)
	require.NoError(t, err)
	assert.Zero(t, modes)
	settings, err := b.Settings(ctx, address)
	require.NoError(t, err)
	assert.Zero(t, settings)
	obstacles, err := b.Obstacles(ctx, address, true)
	require.NoError(t, err)
	assert.Empty(t, obstacles)
	assert.Empty(t, b.RemovalCommand(gpu.Partition{}))
}

type remover struct{ hardware.Driver }

func (remover) RemovalCommand(p gpu.Partition) string { return "remove " + p.ID }

func TestRemovalCommand(t *testing.T) {
	of := hardware.Lookup(func(pciAddress string) (hardware.Driver, error) {
		if pciAddress != "0000:05:00.0" {
			return nil, hardware.NoDriver(gpu.AMD, errors.New("amdgpu is not loaded"))
		}
		return remover{}, nil
	})
	assert.Equal(t, "remove 7", of.RemovalCommand(gpu.Partition{GPU: "0000:05:00.0", ID: "7"}))
	assert.Empty(t, of.RemovalCommand(gpu.Partition{GPU: "0000:06:00.0", ID: "7"}), "a GPU without a driver")
}

func TestNoDriver(t *testing.T) {
	reason := errors.New("amdgpu is not loaded")
	err := hardware.NoDriver(gpu.AMD, reason)
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	require.ErrorIs(t, err, reason)
	assert.EqualError(t, err, "no GPU driver on this node (AMD): amdgpu is not loaded")
}

func TestMachineFiles(t *testing.T) {
	assert.Empty(t, hardware.DriverRoot(""), "a real machine")
	assert.Equal(t, "/run/simulated/driver", hardware.DriverRoot("/run/simulated"))

	root := t.TempDir()
	assert.Empty(t, hardware.BootID(root), "nothing tells")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/sys/kernel/random"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("6c7d3b1e\n"), 0o600))
	assert.Equal(t, "6c7d3b1e", hardware.BootID(root))
}

// A system that serves nothing on the node now is no owner: it may have been removed.
func TestOwnersByEvidence(t *testing.T) {
	names := regexp.MustCompile(`^amd\.com/`)
	node := func(allocatable corev1.ResourceList) hardware.Evidence {
		return hardware.Evidence{Node: &corev1.Node{Status: corev1.NodeStatus{Allocatable: allocatable}}}
	}
	for name, test := range map[string]struct {
		evidence hardware.Evidence
		found    string
	}{
		"no node yet":         {hardware.Evidence{}, ""},
		"none left":           {node(corev1.ResourceList{"amd.com/gpu": resource.MustParse("0")}), ""},
		"of another vendor":   {node(corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}), ""},
		"several, by name":    {node(corev1.ResourceList{"amd.com/gpu": resource.MustParse("8"), "amd.com/cpx_nps1": resource.MustParse("16"), "cpu": resource.MustParse("4")}), "a device plugin serves amd.com/cpx_nps1: 16, amd.com/gpu: 8 here"},
		"what others had too": {node(corev1.ResourceList{"amd.com/gpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("8")}), "a device plugin serves amd.com/gpu: 8 here"},
	} {
		var want []hardware.Owner
		if test.found != "" {
			want = []hardware.Owner{{Name: "device-plugin", Found: test.found, Remedy: "remove it"}}
		}
		assert.Equal(t, want, test.evidence.DevicePlugin(names, "remove it"), name)
	}

	slice := func(driver string, devices int) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, Devices: make([]resourceapi.Device, devices)}}
	}
	of := func(all ...*resourceapi.ResourceSlice) []hardware.Owner {
		return hardware.Evidence{Slices: all}.DRADriver("gpu.amd.com", "uninstall it")
	}
	assert.Empty(t, of(slice("gpu.amd.com", 0), slice("gpu.nvidia.com", 2)), "its slices are empty")
	assert.Equal(t, []hardware.Owner{{Name: "gpu.amd.com", Found: "DRA driver gpu.amd.com publishes devices of this node", Remedy: "uninstall it"}},
		of(slice("gpu.nvidia.com", 2), slice("gpu.amd.com", 0), slice("gpu.amd.com", 1)))
}
