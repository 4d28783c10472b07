package node

import (
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// XID 119 ends with a reset, XID 74 by itself. The second does not end the first.
func TestSecondXIDDoesNotHideTheFirst(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	m.awaitWatch()
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 119}}})
	nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", "XID 119")
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 119}, {GPU: address0, XID: 74}}})
	nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", "XID 74")
	// XID 74 is over when the message is that of XID 119 again; three healthy looks
	// after an end of both would bring GPUHealthy.
	for range 4 * inventory.HealthyChecks {
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

// Metrics tell which GPUs work, and why no device of one can be allocated, also after a restart of the
// plugin.
func TestHealthMetrics(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.HTTPAddress = freeAddress(t)
	shown := func(lines ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, body := get(t, "http://"+m.config.HTTPAddress+"/metrics")
			for _, line := range lines {
				assert.Contains(c, body, line)
			}
		}, nodetest.Patience, nodetest.Tick)
	}
	_, stop := m.start()
	shown(`tranche_gpu_healthy{cause="",gpu="`+card0+`",node="node-a"} 1`, `tranche_gpu_healthy{cause="",gpu="`+card1+`",node="node-a"} 1`)
	_, body := get(t, "http://"+m.config.HTTPAddress+"/metrics")
	assert.NotContains(t, body, names.MetricGPUUnavailable+"{")
	m.faults(nvdriver.Faults{Lost: []string{address0}})
	shown(`tranche_gpu_healthy{cause="lost",gpu="`+card0+`",node="node-a"} 0`, `tranche_gpu_unavailable{gpu="`+card0+`",node="node-a",reason="unhealthy"} 1`,
		`tranche_gpu_healthy{cause="",gpu="`+card1+`",node="node-a"} 1`)
	stop()
	_, _ = m.start()
	shown(`gpu="`+card0+`",node="node-a"} 0`, `tranche_gpu_healthy{cause="",gpu="`+card1+`",node="node-a"} 1`)
}

// A fatal XID takes the GPU out of service, tells who is on it, survives a
// restart of the plugin, and is over when the GPU has restarted.
func TestFatalXID(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)

	m.awaitWatch()
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 119}}})
	note := nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", "GPU "+card0+" is not used for new claims: ")
	assert.Contains(t, note, "119")
	assert.Contains(t, note, small0+" is held by claim team/claim-a, pod pod-a")
	awaitDevices(t, m.api, false, isUnhealthy(address0, gpu.XIDCause(119)))

	stop()
	m.faults(nvdriver.Faults{})
	_, stop = m.start()
	awaitDevices(t, m.api, false, isUnhealthy(address0, gpu.XIDCause(119)))

	// A GPU is reset while the plugin runs. Its errors are lost until the plugin watches it.
	var strikes []nvdriver.XID
	require.Eventually(t, func() bool {
		strikes = append(strikes, nvdriver.XID{GPU: address1, XID: 119})
		m.faults(nvdriver.Faults{XIDs: strikes})
		return !slices.ContainsFunc(nodetest.Published(t, m.api), untainted)
	}, nodetest.Patience, 500*time.Millisecond, "it is not tainted")
	m.faults(nvdriver.Faults{})
	require.NoError(t, nvdriver.ResetGPU(m.simulated.Root, address1))
	nodetest.AwaitEvent(t, m.api, "GPUHealthy", card1)
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) == (onGPU(d) == address0) })

	// The other is reset while no plugin runs.
	stop()
	require.NoError(t, nvdriver.ResetGPU(m.simulated.Root, address0))
	for _, s := range nodetest.SlicesOf(t, m.api, names.DriverName) { // as the kubelet of a node that boots
		require.NoError(t, m.api.ResourceV1().ResourceSlices().Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
	}
	k, _ = m.start()
	nodetest.AwaitEvent(t, m.api, "GPUHealthy", card0)
	require.Empty(t, k.unprepare(c), "the reset took the partition")
	awaitDevices(t, m.api, false, untainted)
}

// A program's own error is nobody else's business.
func TestXIDOfAProgram(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	m.awaitWatch()
	m.faults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: address0, XID: 13}, {GPU: address1, XID: 79}}})
	nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", card1)
	// This one's end is the driver's to tell, and it asks for nothing.
	nodetest.AwaitEvent(t, m.api, "GPUHealthy", card1)
	awaitDevices(t, m.api, false, untainted)
	list, err := m.api.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, e := range list.Items {
		assert.NotContains(t, e.Note, card0)
	}
}

// What the driver asks for is done by a person; until then nothing new comes.
func TestRecoveryActionIsAskedFor(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	m.faults(nvdriver.Faults{Recovery: []nvdriver.Recovery{{GPU: address1, Action: "reset"}}})
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", card1), "nvidia-smi --gpu-reset -i "+address1)
	awaitDevices(t, m.api, false, isUnhealthy(address1, gpu.CauseRecovery))
	m.faults(nvdriver.Faults{})
	nodetest.AwaitEvent(t, m.api, "GPUHealthy", card1)
	awaitDevices(t, m.api, false, untainted)
}

// isUnhealthy reports whether the devices of one GPU, and no others, have the taint with a cause.
func isUnhealthy(address string, cause gpu.Cause) func(resourceapi.Device) bool {
	return func(d resourceapi.Device) bool {
		if onGPU(d) != address {
			return untainted(d)
		}
		return len(d.Taints) == 1 && d.Taints[0].Key == names.TaintUnhealthy && d.Taints[0].Value == string(cause)
	}
}

func onGPU(d resourceapi.Device) string {
	return *d.Attributes["resource.kubernetes.io/pciBusID"].StringValue
}

const (
	address0 = "0000:1b:00.0"
	address1 = "0000:43:00.0"
)
