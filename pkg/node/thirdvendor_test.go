package node

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// acme is a vendor with one GPU that has no modes and no partitions. It implements
// what hardware.Vendor and hardware.Driver ask for, and nothing that only some GPUs can do.
type acme struct {
	// ill reports whether the GPU is broken, events are its errors.
	mu     sync.Mutex
	ill    bool
	events chan gpu.HealthEvent
}

const (
	acmePCI = "0000:77:00.0"
	acmeGPU = "gpu-0000-77-00-0"
)

var (
	_ hardware.Vendor = (*acme)(nil)
	_ hardware.Driver = acmeDriver{}
)

func (*acme) Name() gpu.Vendor { return "acme" }

func (a *acme) Open(context.Context) (*hardware.Opened, error) {
	return &hardware.Opened{Driver: acmeDriver{acme: a}, LoadID: "boot/acme"}, nil
}

func (*acme) OwnerDRADrivers() []string { return []string{"gpu.acme.example"} }
func (*acme) OwnerPrograms() []string   { return nil }

func (*acme) Owners(e hardware.Evidence) []hardware.Owner {
	return e.DRADriver("gpu.acme.example", "remove it")
}

func (*acme) UpgradeSignal(node *corev1.Node) string {
	if node.Labels["acme.example/upgrade"] == "" {
		return ""
	}
	return "the node's label acme.example/upgrade"
}

func (*acme) NodeLabels(gpus []hardware.OfferedGPU) map[string]string {
	if len(gpus) == 0 {
		return nil
	}
	return map[string]string{"acme.example/present": "true"}
}

func (*acme) IsNodeLabel(key string) bool { return key == "acme.example/present" }

type acmeDriver struct {
	hardware.Basic
	*acme
}

func (acmeDriver) Inventory(context.Context) ([]gpu.GPU, error) {
	counters := gpu.Counters{"memory": 16 << 30}
	return []gpu.GPU{{
		PCIAddress: acmePCI, Vendor: "acme", UUID: "acme-1", ProductName: "Acme One", DriverVersion: "1.0", PCIeRoot: "pci0000:00",
		Memory: 16 << 30, Counters: counters,
		Placements: []gpu.Placement{{
			GPU: acmePCI, Type: gpu.TypeGPU, Memory: 16 << 30, ComputeUnits: 8, Isolation: gpu.IsolationHardware, Consumes: counters,
		}},
	}}, nil
}

func (acmeDriver) Live(context.Context, string) ([]gpu.Partition, error) { return nil, nil }

func (acmeDriver) Create(_ context.Context, p gpu.Placement) (gpu.Partition, error) {
	return gpu.Partition{GPU: p.GPU, Type: p.Type, UUID: "acme-1", Complete: true}, nil
}

func (acmeDriver) Destroy(context.Context, gpu.Placement) error { return nil }

func (acmeDriver) Edits(context.Context, gpu.Placement) (*cdispecs.ContainerEdits, error) {
	return &cdispecs.ContainerEdits{DeviceNodes: []*cdispecs.DeviceNode{{Path: "/dev/acme0"}}}, nil
}

func (acmeDriver) CommonEdits(context.Context, []string) (*cdispecs.ContainerEdits, error) {
	return &cdispecs.ContainerEdits{Env: []string{"ACME_VISIBLE=acme-1"}}, nil
}

func (d acmeDriver) WatchHealth(ctx context.Context, tell func(gpu.HealthEvent)) error {
	for {
		select {
		case e := <-d.events:
			tell(e)
		case <-ctx.Done():
			return nil
		}
	}
}

func (d acmeDriver) CheckHealth(context.Context, string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ill {
		return errors.New("it smokes")
	}
	return nil
}

func (d acmeDriver) Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error) {
	return d.CheckHealth(ctx, e.PCIAddress) == nil, nil
}

func (acmeDriver) LoadID() (string, error) { return "boot/acme", nil }

func (acmeDriver) Close(context.Context) error { return nil }

func (a *acme) setIll(ill bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ill = ill
}

// newAcmeMachine is a node whose only GPU is acme's.
func newAcmeMachine(t *testing.T) (*machine, *acme) {
	t.Helper()
	m := newMachine(t, nodetest.NewAPI())
	a := &acme{events: make(chan gpu.HealthEvent)}
	m.config.NodeLabels = true
	m.config.Machine = hardware.Machine{
		Vendors: func() ([]hardware.Vendor, error) { return []hardware.Vendor{a}, nil },
		BootID:  func() string { return "boot" },
		Now:     time.Now,
	}
	return m, a
}

// The plugin serves GPUs of a vendor that it has never heard of: it publishes them,
// prepares claims, watches their health and releases their driver.
func TestThirdVendor(t *testing.T) {
	m, a := newAcmeMachine(t)
	k, _ := m.start()
	var whole resourceapi.Device
	require.Eventually(t, func() bool {
		var ok bool
		whole, ok = publishedDevice(t, m.api, acmeGPU)
		return ok
	}, nodetest.Patience, nodetest.Tick, "not published")
	assert.Equal(t, "acme", *whole.Attributes["vendor"].StringValue)
	assert.Equal(t, "Acme One", *whole.Attributes["productName"].StringValue)
	require.Eventually(t, func() bool { return labelOf(m, "acme.example/present") == "true" }, nodetest.Patience, nodetest.Tick)

	c := nodetest.Allocate(t, m.api, "a", acmeGPU)
	require.Len(t, k.mustPrepare(c), 1)
	spec := m.spec("a")
	assert.Contains(t, spec, "/dev/acme0")
	assert.Contains(t, spec, "ACME_VISIBLE=acme-1")
	assert.Equal(t, "boot/acme", m.record("a").Devices[0].LoadID)
	assert.Empty(t, k.unprepare(c))
	assert.Empty(t, m.files(m.config.CDIDir, "*.json"))
	assert.Empty(t, m.files(filepath.Join(m.config.DataDir(), "claims"), "*.json"))

	share := nodetest.Allocate(t, m.api, "b", acmeGPU+"-memory-share")
	require.Len(t, k.mustPrepare(share), 1)
	assert.Contains(t, m.spec("b"), "/dev/acme0")
	assert.Empty(t, k.unprepare(share))

	a.setIll(true)
	a.events <- gpu.HealthEvent{PCIAddress: acmePCI, Fatal: true, Message: "it smokes", LoadID: "boot/acme"}
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintUnhealthy) > 0 }, nodetest.Patience, nodetest.Tick, "no taint")
	a.setIll(false)
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintUnhealthy) == 0 }, nodetest.Patience, nodetest.Tick, "the taint stays")

	m.label("acme.example/upgrade", "now")
	nodetest.AwaitEvent(t, m.api, "DriverReleased", "which the node's label acme.example/upgrade requests")
	m.label("acme.example/upgrade", "")
	nodetest.AwaitEvent(t, m.api, "DriverFound", "ACME")
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintDriverUpgrade) == 0 }, nodetest.Patience, nodetest.Tick, "the taint stays")
}

// labelOf is a label of the plugin's node.
func labelOf(m *machine, key string) string {
	m.t.Helper()
	node, err := m.api.CoreV1().Nodes().Get(m.t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(m.t, err)
	return node.Labels[key]
}
