package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// label sets a label of the node, or takes it away if the value is empty.
func (m *machine) label(key, value string) {
	m.t.Helper()
	nodes := m.api.CoreV1().Nodes()
	node, err := nodes.Get(m.t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(m.t, err)
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[key] = value
	if value == "" {
		delete(node.Labels, key)
	}
	_, err = nodes.Update(m.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(m.t, err)
}

// awaitModuleUnloaded takes NVIDIA's module out as soon as nobody uses it.
func (m *machine) awaitModuleUnloaded() {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return nvdriver.UnloadDriver(m.simulated.Root) == nil }, nodetest.Patience, nodetest.Tick, "the module stays in use")
}

func TestUpgradeSignals(t *testing.T) {
	node := func(labels map[string]string, taints ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	label := func(key, value string) *corev1.Node { return node(map[string]string{key: value}) }
	for name, test := range map[string]struct {
		node *corev1.Node
		want []gpu.Vendor
	}{
		"nothing":           {node: node(nil, "other")},
		"ours, all vendors": {node: label(names.LabelDriverUpgrade, names.DriverUpgradeAll), want: []gpu.Vendor{gpu.AMD, gpu.NVIDIA}},
		"ours, one vendor":  {node: label(names.LabelDriverUpgrade, "amd"), want: []gpu.Vendor{gpu.AMD}},
		"ours, off":         {node: label(names.LabelDriverUpgrade, "false")},
		"NVIDIA's operator": {node: label("nvidia.com/gpu.deploy.dcgm", "paused-for-driver-upgrade"), want: []gpu.Vendor{gpu.NVIDIA}},
		"AMD's operator":    {node: node(nil, "amd-gpu-driver-upgrade"), want: []gpu.Vendor{gpu.AMD}},
	} {
		t.Run(name, func(t *testing.T) {
			found := inventory.UpgradesOf(nodetest.RealVendors(), test.node)
			assert.Len(t, found, len(test.want))
			for _, v := range test.want {
				assert.NotEmpty(t, found[v])
			}
		})
	}
}

// A driver is replaced by another version under a running plugin: it lets the module
// go, releases what needs no driver, keeps what is held published and tainted, and uses
// the new driver without a restart.
func TestDriverUpgrade(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI()).withHealth()
	k, _ := m.start()
	stays, leaves, whole := nodetest.Allocate(t, m.api, "a", small0), nodetest.Allocate(t, m.api, "b", card0+"-mig-1g-10gb-5"), nodetest.Allocate(t, m.api, "c", card1)
	for _, c := range []*resourceapi.ResourceClaim{stays, leaves, whole} {
		k.mustPrepare(c)
	}
	m.awaitReady()
	all := m.awaitPublished()
	require.ErrorIs(t, nvdriver.UnloadDriver(m.simulated.Root), nvdriver.ErrModuleInUse)

	m.label(names.LabelDriverUpgrade, "true")
	nodetest.AwaitEvent(t, m.api, "LabelIgnored", "The label tranche.dev/driver-upgrade=true of this node releases no driver, so do not replace one yet: the value can be all, ")
	require.ErrorIs(t, nvdriver.UnloadDriver(m.simulated.Root), nvdriver.ErrModuleInUse)

	m.label(names.LabelDriverUpgrade, names.DriverUpgradeAll)
	nodetest.AwaitEvent(t, m.api, "DriverReleased", "The NVIDIA driver of this node was released for its upgrade, which the node's label tranche.dev/driver-upgrade=all requests")
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintDriverUpgrade) == all }, nodetest.Patience, nodetest.Tick, "everything is tainted")
	assert.Zero(t, tainted(t, m.api, names.TaintUnhealthy))
	assert.Equal(t, all, m.publishedCount(), "nothing is withdrawn")
	m.requireNotReady("it was released for a driver upgrade, which the node's label tranche.dev/driver-upgrade=all requests")
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "d", card0+"-mig-1g-10gb-6")), "it was released for a driver upgrade")

	// Pods leave while the old module is still there, and after it is gone.
	assert.Empty(t, k.unprepare(whole))
	assert.Empty(t, k.unprepare(leaves))
	assert.Len(t, m.partitions(), 2)
	m.awaitModuleUnloaded()
	assert.Equal(t, 2, m.recordCount())

	// Another version comes. It is not touched before the label is gone.
	m.write("inventories/two.yaml", "driverVersion: \"590.44.01\"\n"+twoGPUs)
	require.NoError(t, nvdriver.LoadDriver(m.simulated.Root))
	assert.Never(t, func() bool { return tainted(t, m.api, names.TaintDriverUpgrade) < all }, 20*nodetest.Tick, nodetest.Tick)
	m.label(names.LabelDriverUpgrade, "")
	nodetest.AwaitEvent(t, m.api, "DriverFound", "NVIDIA")
	m.awaitReady()
	require.Eventually(t, func() bool {
		return tainted(t, m.api, names.TaintDriverUpgrade)+tainted(t, m.api, names.TaintUnhealthy) == 0
	}, nodetest.Patience, nodetest.Tick, "the taints go")
	attributes := nodetest.Published(t, m.api)[0].Attributes
	assert.Equal(t, "590.44.1", *attributes["driverVersion"].VersionValue)
	assert.Equal(t, "13.1.0", *attributes["cudaDriverVersion"].VersionValue)

	require.Eventually(t, func() bool { return m.recordCount() == 1 }, nodetest.Patience, nodetest.Tick, "what was released is forgotten, what is held is not")
	assert.Empty(t, k.unprepare(stays))
	m.nothingHeld()
	k.works(nodetest.Allocate(t, m.api, "e", small0))
}

// A driver that was released and was not replaced after all is used again, with what is
// held in it, and what was released meanwhile is removed.
func TestDriverUpgradeThatDoesNotHappen(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI()).withHealth()
	k, _ := m.start()
	stays, leaves := nodetest.Allocate(t, m.api, "a", small0), nodetest.Allocate(t, m.api, "b", card0+"-mig-1g-10gb-5")
	k.mustPrepare(stays)
	k.mustPrepare(leaves)
	before := m.record("a")
	m.label("nvidia.com/gpu.deploy.dcgm", "paused-for-driver-upgrade")
	nodetest.AwaitEvent(t, m.api, "DriverReleased", "nvidia.com/gpu.deploy.dcgm=paused-for-driver-upgrade")
	assert.Empty(t, k.unprepare(leaves))
	m.label("nvidia.com/gpu.deploy.dcgm", "true")
	m.awaitReady()
	require.Eventually(t, func() bool { return len(m.partitions()) == 1 }, nodetest.Patience, nodetest.Tick)
	assert.Equal(t, before, m.record("a"))
	k.mustPrepare(stays)
	assert.Empty(t, k.unprepare(stays))
	m.nothingHeld()
}

// A plugin that starts in the midst of an upgrade does not open the driver.
func TestStartDuringAnUpgrade(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI()).withHealth()
	k, stop := m.start()
	c := nodetest.Allocate(t, m.api, "a", card1)
	k.mustPrepare(c)
	all := m.awaitPublished()
	stop()
	m.label(names.LabelDriverUpgrade, "nvidia")
	k, _ = m.start()
	require.NoError(t, nvdriver.UnloadDriver(m.simulated.Root), "nobody has the driver open")
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintDriverUpgrade) == all }, nodetest.Patience, nodetest.Tick)
	m.requireNotReady("tranche.dev/driver-upgrade=nvidia")
	assert.Empty(t, k.unprepare(c))
	require.NoError(t, nvdriver.LoadDriver(m.simulated.Root))
	m.label(names.LabelDriverUpgrade, "")
	m.awaitReady()
	k.works(nodetest.Allocate(t, m.api, "b", small0))
}

// AMD's operator says by a taint that it replaces its driver. GPUs of the other vendor
// are allocated as before.
func TestUpgradeOfOneVendor(t *testing.T) {
	m := newMixedMachine(t, nodetest.NewAPI()).withHealth()
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	m.awaitReady()
	setTaint := func(taints ...corev1.Taint) {
		node, err := m.api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		node.Spec.Taints = taints
		_, err = m.api.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	setTaint(corev1.Taint{Key: "amd-gpu-driver-upgrade", Value: "true", Effect: corev1.TaintEffectNoSchedule})
	nodetest.AwaitEvent(t, m.api, "DriverReleased", "The AMD driver of this node was released for its upgrade, which the node's taint amd-gpu-driver-upgrade requests")
	m.requireNotReady("the AMD driver of this node cannot be used")
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintDriverUpgrade) > 0 }, nodetest.Patience, nodetest.Tick)
	for _, d := range nodetest.Published(t, m.api) {
		if *d.Attributes["vendor"].StringValue == string(gpu.NVIDIA) {
			assert.Empty(t, d.Taints, d.Name)
		}
	}
	b := nodetest.Allocate(t, m.api, "b", small0)
	k.mustPrepare(b)
	assert.Empty(t, k.unprepare(b))
	assert.Empty(t, k.unprepare(c))
	setTaint()
	m.awaitReady()
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintDriverUpgrade) == 0 }, nodetest.Patience, nodetest.Tick)
	d := nodetest.Allocate(t, m.api, "d", cpx3)
	k.mustPrepare(d)
	assert.Empty(t, k.unprepare(d))
	m.nothingHeld()
}

// A call that hangs in the library keeps it from being unloaded. The plugin ends, which
// lets it go, and the next one starts without it.
func TestDriverThatHangsWhenItIsReleased(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.releasePatience = time.Second
	ended := make(chan error, 1)
	go func() { ended <- Run(nodetest.Quiet(t.Context()), m.config, m.api) }()
	m.register()
	m.awaitPublished()
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMemoryInfo", GPU: pci0, Hang: true}}})
	t.Cleanup(func() { m.faults(nvdriver.Faults{}) })
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintUnhealthy) > 0 }, 3*nodetest.Patience, nodetest.Tick, "the GPU hangs")
	m.label(names.LabelDriverUpgrade, names.DriverUpgradeAll)
	err := <-ended
	require.ErrorContains(t, err, "the NVIDIA driver cannot be released for its upgrade, so the plugin restarts without it")
	assert.False(t, strings.Contains(err.Error(), "\n"), "one line")
}

// restarting is a vendor whose driver was replaced: the first process cannot use the new one.
type restarting struct {
	hardware.Vendor
	opened *atomic.Int64
}

func (v restarting) Open(ctx context.Context) (*hardware.Opened, error) {
	if v.opened.Add(1) > 1 {
		return nil, fmt.Errorf("libnvidia-ml.so.1 was replaced: %w", hardware.ErrRestart)
	}
	return v.Vendor.Open(ctx)
}

// A process keeps the library that it has loaded, so the plugin ends after the upgrade, and the next
// one uses the new driver.
func TestDriverThatNeedsANewProcess(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	real := m.config.Machine.Vendors
	var opened atomic.Int64
	m.config.Machine.Vendors = func() ([]hardware.Vendor, error) {
		vendors, err := real()
		for i := range vendors {
			vendors[i] = restarting{vendors[i], &opened}
		}
		return vendors, err
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(nodetest.Quiet(t.Context()), m.config, m.api) }()
	m.register()
	m.awaitPublished()
	m.label(names.LabelDriverUpgrade, names.DriverUpgradeAll)
	nodetest.AwaitEvent(t, m.api, "DriverReleased", "NVIDIA")
	m.label(names.LabelDriverUpgrade, "")
	require.ErrorContains(t, <-ended, "the NVIDIA driver was replaced, so the plugin restarts: libnvidia-ml.so.1 was replaced")
	events, err := m.api.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.NotContains(t, events.String(), "HardwareUnusable", "the next process can use the driver")

	m.config.Machine.Vendors = real
	k, _ := m.start()
	k.works(nodetest.Allocate(t, m.api, "a", small0))
}
