package node

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
)

// slicesOfTwoCards is one slice with counters and one with devices for each.
const slicesOfTwoCards = 4

func awaitSlices(t *testing.T, api *fake.Clientset) {
	t.Helper()
	require.Eventually(t, func() bool { return len(slicesOf(t, api, gpu.DriverName)) == slicesOfTwoCards }, patience, tick, "not published")
}

// awaitDevices waits until all devices that are published are as they should
// be, and there are as many as there should be.
func awaitDevices(t *testing.T, api *fake.Clientset, none bool, ok func(resourceapi.Device) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		devices := published(t, api)
		for _, d := range devices {
			if !ok(d) {
				return false
			}
		}
		return none == (len(devices) == 0) && len(slicesOf(t, api, gpu.DriverName)) == slicesOfTwoCards
	}, patience, tick)
}

func untainted(d resourceapi.Device) bool { return len(d.Taints) == 0 }

// A kubelet that starts removes the slices of its node and then registers the
// plugin again.
func TestRepublishAfterKubeletRestart(t *testing.T) {
	m := newMachine(t, newAPI())
	k, _ := m.start()
	awaitSlices(t, m.api)
	before := published(t, m.api)
	for range 3 {
		for _, s := range slicesOf(t, m.api, gpu.DriverName) {
			require.NoError(t, m.api.ResourceV1().ResourceSlices().Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
		}
		k.registered()
		awaitSlices(t, m.api)
		assert.ElementsMatch(t, before, published(t, m.api))
	}
}

func TestRestartOnUnchangedHardwareWritesNothing(t *testing.T) {
	m := newMachine(t, newAPI())
	k, stop := m.start()
	awaitSlices(t, m.api)
	k.mustPrepare(allocate(t, m.api, "a", small0))
	stop()
	require.Len(t, slicesOf(t, m.api, gpu.DriverName), slicesOfTwoCards, "the slices stay while the plugin is away")
	m.api.ClearActions()

	k, stop = m.start()
	// When something new has been published, the first publication is through.
	setAllocatable(t, m.api, "8")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) })
	assert.Equal(t, 2, sliceWrites(m.api), "one write a card for the taint, and none before")
	k.registered()
	stop()
}

// What a plugin that ends cannot find out any more is no fault of the cards.
func TestAPluginThatEndsTaintsNoCard(t *testing.T) {
	m := newMachine(t, newAPI())
	m.config.LookInterval = time.Millisecond
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	k.registered()
	// It ends in the middle of a look.
	m.faults(simulate.Faults{Calls: []simulate.CallFault{
		{Call: "GetFieldValues", GPU: "*", Delay: metav1.Duration{Duration: 200 * time.Millisecond}},
	}})
	time.Sleep(100 * time.Millisecond) // nothing tells that one has begun
	stop()
	for _, d := range published(t, m.api) {
		require.Empty(t, d.Taints, d.Name)
	}
}

func setAllocatable(t *testing.T, api *fake.Clientset, quantity string) {
	t.Helper()
	n := nodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": quantity})
	n.Name, n.UID = nodeName, "node-uid"
	_, err := api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestOtherOwnerAppearsAfterPublishing(t *testing.T) {
	m := newMachine(t, newAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	k.mustPrepare(allocate(t, m.api, "a", small0))

	setAllocatable(t, m.api, "8")
	tainted := func(d resourceapi.Device) bool {
		return len(d.Taints) == 1 && d.Taints[0].Key == TaintOwner && d.Taints[0].Value == "device-plugin"
	}
	awaitDevices(t, m.api, false, tainted)
	assert.Contains(t, awaitEvent(t, m.api, "OtherOwner", ""), "a device plugin serves nvidia.com/gpu: 8 here")
	// A restart does not withdraw what may be allocated.
	stop()
	_, _ = m.start()
	awaitDevices(t, m.api, false, tainted)
	setAllocatable(t, m.api, "0")
	awaitDevices(t, m.api, false, untainted)
	awaitEvent(t, m.api, "OtherOwnerGone", "")
}

func TestOtherOwnerAtFirstPublish(t *testing.T) {
	for name, tt := range map[string]struct {
		api  *fake.Clientset
		gone func(*fake.Clientset) error
		note string
	}{
		"NVIDIA's DRA driver": {
			newAPI(nvidiaSlice(resourceapi.Device{Name: "gpu-0"})),
			func(api *fake.Clientset) error {
				return api.ResourceV1().ResourceSlices().Delete(t.Context(), "nvidia", metav1.DeleteOptions{})
			},
			"DRA driver gpu.nvidia.com publishes devices",
		},
		"mig-manager": {
			newAPI(migManager(corev1.PodRunning)),
			func(api *fake.Clientset) error {
				return api.CoreV1().Pods("gpu-operator").Delete(t.Context(), "mig-manager-x", metav1.DeleteOptions{})
			},
			"pod gpu-operator/mig-manager-x of mig-manager runs here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, tt.api)
			_, _ = m.start()
			awaitDevices(t, m.api, true, untainted)
			assert.Contains(t, awaitEvent(t, m.api, "OtherOwner", ""), tt.note)
			require.NoError(t, tt.gone(m.api))
			awaitDevices(t, m.api, false, untainted)
		})
	}
}

func TestIgnoreOtherOwners(t *testing.T) {
	m := newMachine(t, newAPI(nvidiaSlice(resourceapi.Device{Name: "gpu-0"})))
	m.config.IgnoreOtherOwners = true
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
}

// A card that falls off the bus keeps its devices, tainted: they may be
// allocated. Later publications keep the taint.
func TestLostCardIsTainted(t *testing.T) {
	m := newMachine(t, newAPI())
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	m.faults(simulate.Faults{Lost: []string{pci0}})
	lost := func(d resourceapi.Device) bool { return strings.HasPrefix(d.Name, card0) }
	tainted := func(d resourceapi.Device) bool { return untainted(d) != lost(d) }
	awaitDevices(t, m.api, false, tainted)
	m.faults(simulate.Faults{})
	awaitDevices(t, m.api, false, untainted)
}
