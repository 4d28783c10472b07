package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// driversOf are the drivers of a plugin that has begun.
func driversOf(t *testing.T, c *Config) *inventory.Drivers {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName}}
	api := kubefake.New(object)
	events, err := telemetry.OpenEvents(nodetest.Quiet(t.Context()), api, object)
	require.NoError(t, err)
	t.Cleanup(events.Close)
	vendors, err := c.Machine.Vendors()
	require.NoError(t, err)
	return inventory.NewDrivers(inventory.DriversConfig{
		Vendors: vendors, Upgrades: inventory.NewNode(api, object, vendors, nil).Upgrades, Roster: &inventory.Roster{}, Events: events,
	})
}

// absentVendor is a vendor whose driver is not installed.
type absentVendor struct{ nvidia.Vendor }

func (absentVendor) Open(context.Context) (*hardware.Opened, error) {
	return nil, hardware.NoDriver(gpu.NVIDIA, errors.New("install it"))
}

func TestOpenHardwareWithoutDriver(t *testing.T) {
	absent := func() ([]hardware.Vendor, error) { return []hardware.Vendor{absentVendor{}}, nil }
	h := driversOf(t, &Config{Machine: hardware.Machine{Vendors: absent}})
	assert.Empty(t, h.Open(nodetest.Quiet(t.Context())))
	require.NoError(t, h.Problem(), "the plugin idles")
	assert.Contains(t, h.WhyNone(), "install it")
}

// A driver that is loaded and cannot be opened is one that the node should have.
func TestOpenHardwareDriverNotOpened(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	require.NoError(t, os.MkdirAll(m.config.DataDir(), 0o750))
	h := driversOf(t, m.config)
	added := h.Open(nodetest.Quiet(t.Context()))
	require.Len(t, added, 1)
	load := added[0].Load()
	assert.NotEmpty(t, load)
	require.NoError(t, h.Close(t.Context()))

	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "Init", GPU: "*", Error: 18}}})
	h = driversOf(t, m.config)
	assert.Empty(t, h.Open(nodetest.Quiet(t.Context())))
	require.ErrorContains(t, h.Problem(), "the NVIDIA driver of this node cannot be used: open NVML")
	assert.Equal(t, load, h.Find(gpu.NVIDIA).Load(), "what it holds stays held")
	require.NoError(t, nvdriver.UnloadDriver(m.simulated.Root))
	h = driversOf(t, m.config)
	assert.Empty(t, h.Open(nodetest.Quiet(t.Context())))
	require.NoError(t, h.Problem(), "one that is not loaded is waited for")
}

func TestHardwareReport(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", small0))
	m.makeForeign(half0)

	var text bytes.Buffer
	require.NoError(t, PrintReport(t.Context(), m.config.DataDir(), &text, false))
	assert.Contains(t, text.String(), "claim team/claim-a, pod pod-a")
	assert.Contains(t, text.String(), "not made by Tranche: nvidia-smi mig -i "+address0)

	var told HardwareReport
	var data bytes.Buffer
	require.NoError(t, PrintReport(t.Context(), m.config.DataDir(), &data, true))
	require.NoError(t, json.Unmarshal(data.Bytes(), &told))
	assert.Equal(t, metav1.TypeMeta{APIVersion: names.OutputVersion, Kind: "HardwareReport"}, told.TypeMeta)
	require.Len(t, told.GPUs, 2)
	assert.Len(t, told.GPUs[0].Devices, 2)
	assert.Equal(t, half0, told.GPUs[0].Devices[1].Name)
	assert.NotEmpty(t, told.GPUs[0].Devices[0].UUID)
	assert.Equal(t, "claim-a", told.GPUs[0].Devices[0].Claim)
	assert.Equal(t, []string{"pod-a"}, told.GPUs[0].Devices[0].Pods)
	assert.True(t, told.GPUs[0].Devices[1].Foreign)
	assert.Contains(t, told.GPUs[0].Devices[1].RemovalCommand, "nvidia-smi mig -i "+address0)
	assert.Empty(t, told.GPUs[1].Devices)

	sockets := m.files(m.config.DataDir(), reportSockets)
	require.Len(t, sockets, 1)
	info, err := os.Stat(sockets[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "for root only")

	stop()
	require.ErrorContains(t, PrintReport(t.Context(), m.config.DataDir(), &text, false), "no plugin with GPUs is at work on this node")
	require.NoError(t, os.WriteFile(filepath.Join(m.config.DataDir(), "report-x.sock"), nil, 0o600))
	require.ErrorContains(t, PrintReport(t.Context(), m.config.DataDir(), &text, false), "ask the plugin")
}
