package node

import (
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// withHealth makes the plugin's health endpoints known.
func (m *machine) withHealth() *machine {
	m.config.HTTPAddress = freeAddress(m.t)
	return m
}

// awaitReady waits until the plugin says that it is ready.
func (m *machine) awaitReady() {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		code, _ := get(m.t, "http://"+m.config.HTTPAddress+"/readyz")
		return code == http.StatusOK
	}, nodetest.Patience, nodetest.Tick, "the plugin is not ready")
}

// requireNotReady waits until the plugin says why it is not ready.
func (m *machine) requireNotReady(why string) {
	m.t.Helper()
	var code int
	var body string
	require.Eventually(m.t, func() bool {
		code, body = get(m.t, "http://"+m.config.HTTPAddress+"/readyz")
		return code == http.StatusServiceUnavailable
	}, nodetest.Patience, nodetest.Tick, "the plugin is ready")
	require.Contains(m.t, body, why)
}

// tainted counts the published devices that have a taint.
func tainted(t *testing.T, api *fake.Clientset, key string) (n int) {
	t.Helper()
	for _, d := range nodetest.Published(t, api) {
		for _, taint := range d.Taints {
			if taint.Key == key {
				n++
			}
		}
	}
	return n
}

// awaitPublished waits until both GPUs are published, and counts their devices.
func (m *machine) awaitPublished() int {
	m.t.Helper()
	var names []string
	require.Eventually(m.t, func() bool {
		names = nil
		for _, d := range nodetest.Published(m.t, m.api) {
			names = append(names, d.Name)
		}
		return slices.Contains(names, card0) && slices.Contains(names, card1)
	}, nodetest.Patience, nodetest.Tick, "the GPUs are not published")
	return len(names)
}

// publishedCount counts the devices that are published.
func (m *machine) publishedCount() int { return len(nodetest.Published(m.t, m.api)) }

func (m *machine) recordCount() int {
	return len(m.files(filepath.Join(m.config.DataDir(), "claims"), "*.json"))
}

// A plugin whose driver's library is gone serves the kubelet: pods can leave, whatever
// they hold, nothing is withdrawn, and new pods are told why they get nothing. It is not
// ready, so that an older plugin which still works is not ended for it. When the
// library is back, so is everything, without a restart.
func TestLibraryMissingAtStart(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI()).withHealth()
	k, stop := m.start()
	partition, whole := nodetest.Allocate(t, m.api, "a", small0), nodetest.Allocate(t, m.api, "b", card1)
	k.mustPrepare(partition)
	k.mustPrepare(whole)
	m.awaitReady()
	all := m.awaitPublished()
	stop()

	m.faults(nvdriver.Faults{LibraryMissing: true})
	k, _ = m.start()
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintUnhealthy) == all }, nodetest.Patience, nodetest.Tick, "everything is tainted")
	assert.Equal(t, all, m.publishedCount(), "nothing is withdrawn")
	m.requireNotReady("the NVIDIA driver of this node cannot be used: its kernel module is loaded, but there is no library")
	nodetest.AwaitEvent(t, m.api, "HardwareUnusable", "no library")

	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "c", card0+"-mig-1g-10gb-6")), "the NVIDIA driver of GPU "+card0+" cannot be used: its kernel module is loaded")
	k.mustPrepare(partition) // a kubelet that starts again asks for running pods, too
	assert.Empty(t, k.unprepare(partition))
	assert.Empty(t, k.unprepare(whole))
	assert.Empty(t, m.files(m.config.CDIDir, "*.json"))
	assert.Equal(t, 1, m.recordCount(), "the partition is still to be removed")
	assert.Equal(t, []string{small0}, m.partitions())

	m.faults(nvdriver.Faults{})
	m.awaitReady()
	require.Eventually(t, func() bool { return m.recordCount() == 0 }, nodetest.Patience, nodetest.Tick, "the partition is removed")
	m.nothingHeld()
	require.Eventually(t, func() bool { return tainted(t, m.api, names.TaintUnhealthy) == 0 }, nodetest.Patience, nodetest.Tick)
	k.works(nodetest.Allocate(t, m.api, "d", small0))
}

// While the module is not loaded, it is not known whether a partition exists. Its claim is released,
// and the next load ends what is remembered of it.
func TestModuleNotLoadedAtStart(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI()).withHealth()
	k, stop := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	stop()

	require.NoError(t, nvdriver.UnloadDriver(m.simulated.Root))
	k, _ = m.start()
	m.requireNotReady("the NVIDIA driver of this node cannot be used")
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "b", card1)), "no GPU driver on this node")
	assert.Empty(t, k.unprepare(c))
	assert.Empty(t, m.files(m.config.CDIDir, "*.json"))
	assert.Equal(t, 1, m.recordCount())

	require.NoError(t, nvdriver.LoadDriver(m.simulated.Root))
	m.awaitReady()
	require.Eventually(t, func() bool { return m.recordCount() == 0 }, nodetest.Patience, nodetest.Tick)
	m.nothingHeld()
	k.works(nodetest.Allocate(t, m.api, "c", small0))
}

// A driver whose library does not match its module is one that cannot be used.
func TestDriverDoesNotOpenAtStart(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI()).withHealth()
	k, stop := m.start()
	c := nodetest.Allocate(t, m.api, "a", card1)
	k.mustPrepare(c)
	all := m.awaitPublished()
	stop()

	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "Init", GPU: "*", Error: 18}}})
	k, stop = m.start()
	m.requireNotReady("open NVML")
	assert.Empty(t, k.unprepare(c))
	m.nothingHeld()
	assert.Equal(t, all, m.publishedCount())
	stop()

	m.faults(nvdriver.Faults{})
	k, _ = m.start()
	m.awaitReady()
	k.works(nodetest.Allocate(t, m.api, "b", small0))
}
