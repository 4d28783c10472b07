package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
)

func TestTroublesSurviveARestart(t *testing.T) {
	ctx := quiet(t.Context())
	path := filepath.Join(t.TempDir(), "health.json")
	first, err := openTroubles(path)
	require.NoError(t, err)
	assert.Empty(t, first.list())
	bad := gpu.HealthEvent{PCIAddress: "0000:01:00.0", XID: 79, Fatal: true, Message: "fell off the bus", LoadID: "boot/1", Energy: 7}
	first.add(ctx, bad)

	second, err := openTroubles(path)
	require.NoError(t, err)
	assert.Equal(t, []gpu.HealthEvent{bad}, second.list())

	// The end of an event does not end the same error when it has come again.
	again := bad
	again.Energy = 9
	second.add(ctx, again)
	second.over(ctx, bad)
	assert.Equal(t, []gpu.HealthEvent{again}, second.list())
	second.over(ctx, again)
	third, err := openTroubles(path)
	require.NoError(t, err)
	assert.Empty(t, third.list())
}

func TestTroublesThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	troubles, err := openTroubles(path)
	require.ErrorContains(t, err, "read which GPUs were in trouble from "+path)
	assert.Empty(t, troubles.list(), "the plugin goes on")
	troubles.add(quiet(t.Context()), gpu.HealthEvent{PCIAddress: "0000:01:00.0", Message: "x"})
	troubles, err = openTroubles(path)
	require.NoError(t, err)
	assert.Len(t, troubles.list(), 1)
}

// Errors of one GPU that end in different ways are all kept.
func TestTroublesOfOneGPUEndOneByOne(t *testing.T) {
	ctx := quiet(t.Context())
	path := filepath.Join(t.TempDir(), "health.json")
	troubles, err := openTroubles(path)
	require.NoError(t, err)
	dead := gpu.HealthEvent{PCIAddress: "0000:01:00.0", XID: 119, Fatal: true, Message: "XID 119"}
	link := gpu.HealthEvent{PCIAddress: "0000:01:00.0", XID: 74, Fatal: true, Message: "XID 74"}
	other := gpu.HealthEvent{PCIAddress: "0000:02:00.0", XID: 79, Fatal: true, Message: "XID 79"}
	for _, e := range []gpu.HealthEvent{dead, other, link} {
		troubles.add(ctx, e)
	}
	assert.Equal(t, "XID 119; XID 74", troubles.problem("0000:01:00.0"))
	troubles.over(ctx, link)
	assert.Equal(t, "XID 119", troubles.problem("0000:01:00.0"))
	troubles, err = openTroubles(path)
	require.NoError(t, err)
	assert.Equal(t, []gpu.HealthEvent{dead, other}, troubles.list())
}

// XID 119 ends with a reset, XID 74 by itself. The second does not end the first.
func TestSecondXIDDoesNotHideTheFirst(t *testing.T) {
	m := newMachine(t, newAPI())
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	m.awaitWatch()
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 119}}})
	awaitEvent(t, m.api, "GPUUnhealthy", "XID 119")
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 119}, {GPU: address0, XID: 74}}})
	awaitEvent(t, m.api, "GPUUnhealthy", "XID 74")
	// XID 74 is over when the message is that of XID 119 again; three healthy looks
	// after an end of both would bring GPUHealthy.
	for range 4 * recoveredLooks {
		m.faults(nvdriver.Faults{
			XIDs:  []nvdriver.XID{{GPU: address0, XID: 119}, {GPU: address0, XID: 74}},
			Calls: []nvdriver.CallFault{{Call: "GetMemoryInfo", GPU: address1, Times: 1, Delay: metav1.Duration{Duration: time.Millisecond}}},
		})
		m.awaitHang() // the plugin has looked again
	}
	list, err := m.api.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, e := range list.Items {
		assert.NotEqual(t, "GPUHealthy", e.Reason, e.Note)
	}
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) == (onGPU(d) == address0) })
}

// awaitWatch waits until the plugin listens to what the GPUs report: of an XID that came
// before, it would never hear.
func (m *machine) awaitWatch() {
	m.t.Helper()
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "EventSetWait", GPU: "*", Times: 1, Error: nvdriver.Return(nvml.ERROR_TIMEOUT)}}})
	m.awaitHang()
}

// A fatal XID takes the GPU out of service, tells who is on it, survives a
// restart of the plugin, and is over when the GPU has started anew.
func TestFatalXID(t *testing.T) {
	m := newMachine(t, newAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := allocate(t, m.api, "a", small0)
	k.mustPrepare(c)

	m.awaitWatch()
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 119}}})
	note := awaitEvent(t, m.api, "GPUUnhealthy", "Nothing new is put on GPU "+card0)
	assert.Contains(t, note, "119")
	assert.Contains(t, note, small0+" is held by claim team/claim-a, pod pod-a")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) == (onGPU(d) == address0) })

	stop()
	m.faults(nvdriver.Faults{})
	_, stop = m.start()
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) == (onGPU(d) == address0) })

	stop()
	require.NoError(t, nvdriver.ResetGPU(m.simulated.Root, address0))
	k, _ = m.start()
	require.Empty(t, k.unprepare(c), "the reset took the partition")
	awaitDevices(t, m.api, false, untainted)
}

// A program's own error is nobody else's business.
func TestXIDOfAProgram(t *testing.T) {
	m := newMachine(t, newAPI())
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	m.awaitWatch()
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 13}, {GPU: address1, XID: 79}}})
	awaitEvent(t, m.api, "GPUUnhealthy", card1)
	// This one's end is the driver's to tell, and it asks for nothing.
	awaitEvent(t, m.api, "GPUHealthy", card1)
	awaitDevices(t, m.api, false, untainted)
	list, err := m.api.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, e := range list.Items {
		assert.NotContains(t, e.Note, card0)
	}
}

// What the driver asks for is done by a person; until then nothing new comes.
func TestRecoveryActionIsAskedFor(t *testing.T) {
	m := newMachine(t, newAPI())
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	m.faults(nvdriver.Faults{Recovery: []nvdriver.Recovery{{GPU: address1, Action: "reset"}}})
	assert.Contains(t, awaitEvent(t, m.api, "GPUUnhealthy", card1), "nvidia-smi --gpu-reset -i "+address1)
	m.faults(nvdriver.Faults{})
	awaitEvent(t, m.api, "GPUHealthy", card1)
	awaitDevices(t, m.api, false, untainted)
}

func onGPU(d resourceapi.Device) string {
	return *d.Attributes["resource.kubernetes.io/pciBusID"].StringValue
}

const (
	address0 = "0000:1b:00.0"
	address1 = "0000:43:00.0"
)
