package node

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// pluginOf is a plugin that has begun, as far as drivers are concerned.
func pluginOf(t *testing.T, c *Config) *plugin {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName}}
	api := fake.NewClientset(object)
	node := nodewatch.New(api, object)
	events, err := telemetry.OpenEvents(nodetest.Quiet(t.Context()), api, object)
	require.NoError(t, err)
	t.Cleanup(events.Close)
	vendors, err := c.Machine.Vendors()
	require.NoError(t, err)
	node.Vendors = vendors
	return &plugin{
		Config: c, node: node, drivers: &drivers.Missing{}, hardware: &drivers.Set{}, roster: &inventory.Roster{}, events: events,
		openers: drivers.OpenersOf(vendors),
	}
}

// absentVendor is a vendor whose driver is not installed.
type absentVendor struct{ nvidia.Vendor }

func (absentVendor) Open(context.Context) (*hardware.Opened, error) {
	return nil, hardware.NoDriver(gpu.NVIDIA, errors.New("install it"))
}

func TestOpenHardwareWithoutDriver(t *testing.T) {
	absent := func() ([]hardware.Vendor, error) { return []hardware.Vendor{absentVendor{}}, nil }
	p := pluginOf(t, &Config{Machine: hardware.Machine{Vendors: absent}})
	assert.Empty(t, p.openDrivers(nodetest.Quiet(t.Context())))
	require.NoError(t, p.drivers.Problem(), "the plugin idles")
	assert.Contains(t, p.whyIdle(), "install it")
}

// A driver that is loaded and cannot be opened is one that the node should have.
func TestOpenHardwareDriverNotOpened(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	require.NoError(t, os.MkdirAll(m.config.DataDir(), 0o750))
	p := pluginOf(t, m.config)
	added := p.openDrivers(nodetest.Quiet(t.Context()))
	require.Len(t, added, 1)
	load := added[0].Load()
	assert.NotEmpty(t, load)
	require.NoError(t, p.hardware.Close(t.Context()))

	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "Init", GPU: "*", Error: 18}}})
	p = pluginOf(t, m.config)
	assert.Empty(t, p.openDrivers(nodetest.Quiet(t.Context())))
	require.ErrorContains(t, p.drivers.Problem(), "the NVIDIA driver of this node cannot be used: open NVML")
	assert.Equal(t, load, p.hardware.Find(gpu.NVIDIA).Load(), "what it holds stays held")
	require.NoError(t, nvdriver.UnloadDriver(m.simulated.Root))
	p = pluginOf(t, m.config)
	assert.Empty(t, p.openDrivers(nodetest.Quiet(t.Context())))
	require.NoError(t, p.drivers.Problem(), "one that is not loaded is waited for")
}
