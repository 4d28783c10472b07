package node

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// slicesOfTwoGPUs is one slice with counters and one with devices for each GPU.
const slicesOfTwoGPUs = 3

func awaitSlices(t *testing.T, api *fake.Clientset) {
	t.Helper()
	require.Eventually(t, func() bool { return len(nodetest.SlicesOf(t, api, names.DriverName)) == slicesOfTwoGPUs }, nodetest.Patience, nodetest.Tick, "not published")
}

// awaitDevices waits until all devices that are published are as they should
// be, and there are as many as there should be.
func awaitDevices(t *testing.T, api *fake.Clientset, none bool, ok func(resourceapi.Device) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		devices := nodetest.Published(t, api)
		for _, d := range devices {
			if !ok(d) {
				return false
			}
		}
		return none == (len(devices) == 0) && len(nodetest.SlicesOf(t, api, names.DriverName)) == slicesOfTwoGPUs
	}, nodetest.Patience, nodetest.Tick)
}

func untainted(d resourceapi.Device) bool { return len(d.Taints) == 0 }

// A kubelet that starts removes the slices of its node and then registers the
// plugin again.
func TestRepublishAfterKubeletRestart(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitSlices(t, m.api)
	before := nodetest.Published(t, m.api)
	for range 3 {
		for _, s := range nodetest.SlicesOf(t, m.api, names.DriverName) {
			require.NoError(t, m.api.ResourceV1().ResourceSlices().Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
		}
		k.registered()
		awaitSlices(t, m.api)
		assert.ElementsMatch(t, before, nodetest.Published(t, m.api))
	}
}

// The first publication waits until the helper has listed the ResourceSlices of the node. The
// kubelet must not wait for that.
func TestPrepareDuringPublication(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	var waits atomic.Bool
	clientfake.React(&m.api.Fake, "list", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, ok := action.(clienttesting.ListActionImpl)
		driver, _ := list.ListRestrictions.Fields.RequiresExactMatch(resourceapi.ResourceSliceSelectorDriver)
		if !ok || driver != names.DriverName || list.ListOptions.ResourceVersion != "0" {
			return false, nil, nil // not by the helper's informer
		}
		waits.Store(true)
		return true, nil, apierrors.NewServiceUnavailable("the API server is busy")
	})
	k, _ := m.start()
	require.Eventually(t, waits.Load, nodetest.Patience, nodetest.Tick, "the helper lists nothing")
	a := nodetest.Allocate(t, m.api, "a", small0)
	for range 3 {
		k.mustPrepare(a)
		require.Empty(t, k.unprepare(a))
	}
	m.nothingHeld()
}

func TestRestartOnUnchangedHardwareWritesNothing(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitSlices(t, m.api)
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", small0))
	stop()
	require.Len(t, nodetest.SlicesOf(t, m.api, names.DriverName), slicesOfTwoGPUs, "the slices stay while the plugin is away")
	m.api.ClearActions()

	k, stop = m.start()
	// When something new has been published, the first publication is through.
	setAllocatable(t, m.api, "8")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return !untainted(d) })
	// Two slices that change together get a new generation of the pool, which the third shares.
	assert.LessOrEqual(t, nodetest.SliceWrites(m.api), slicesOfTwoGPUs, "one write a slice for the taint")
	for _, a := range m.api.Actions() {
		if write, ok := a.(clienttesting.UpdateAction); ok && a.GetResource().Resource == "resourceslices" {
			assert.False(t, slices.ContainsFunc(write.GetObject().(*resourceapi.ResourceSlice).Spec.Devices, untainted), "a write before the taint")
		}
	}
	k.registered()
	stop()
}

// What a plugin that ends cannot find out any more is no fault of the GPUs.
func TestAPluginThatEndsTaintsNoGPU(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.LookInterval = time.Millisecond
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	k.registered()
	// It ends in the middle of a look.
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "GetFieldValues", GPU: "*", Delay: metav1.Duration{Duration: 200 * time.Millisecond}},
	}})
	time.Sleep(100 * time.Millisecond) // nothing tells that one has begun
	stop()
	for _, d := range nodetest.Published(t, m.api) {
		require.Empty(t, d.Taints, d.Name)
	}
}

func setAllocatable(t *testing.T, api *fake.Clientset, quantity string) {
	t.Helper()
	n := nodetest.NodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": quantity})
	n.Name, n.UID = nodetest.NodeName, "node-uid"
	_, err := api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestOtherSystemAppearsAfterPublishing(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	m := s.machine
	k, stop := s.start()
	awaitDevices(t, m.api, false, untainted)
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", small0))

	setAllocatable(t, m.api, "8")
	tainted := func(d resourceapi.Device) bool {
		return len(d.Taints) == 1 && d.Taints[0].Key == names.TaintOtherSystem && d.Taints[0].Value == "device-plugin"
	}
	awaitDevices(t, m.api, false, tainted)
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "OtherSystem", ""), "a device plugin serves nvidia.com/gpu: 8 here")
	report := s.await("the other system is not reported", func(r *v1beta1.NodeReport) bool { return len(r.OtherSystems) == 1 })
	assert.Contains(t, report.OtherSystems[0].Message, "a device plugin serves nvidia.com/gpu: 8 here")
	// A restart does not withdraw what may be allocated. It reports again why it is tainted.
	stop()
	_, _ = m.start()
	require.Eventually(t, func() bool {
		list, err := m.api.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		told := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason != names.EventOtherSystem })
		return len(told) == 2
	}, nodetest.Patience, nodetest.Tick)
	awaitDevices(t, m.api, false, tainted)
	setAllocatable(t, m.api, "0")
	awaitDevices(t, m.api, false, untainted)
	nodetest.AwaitEvent(t, m.api, "OtherSystemGone", "")
	s.await("the other system is still reported", func(r *v1beta1.NodeReport) bool { return len(r.OtherSystems) == 0 })
}

func TestOtherSystemAtFirstPublish(t *testing.T) {
	for name, tt := range map[string]struct {
		api   *fake.Clientset
		there func(*machine)
		gone  func(*machine) error
		note  string
	}{
		"NVIDIA's DRA driver": {
			nodetest.NewAPI(nodetest.NVIDIASlice(resourceapi.Device{Name: "gpu-0"})),
			func(*machine) {},
			func(m *machine) error {
				return m.api.ResourceV1().ResourceSlices().Delete(t.Context(), "nvidia", metav1.DeleteOptions{})
			},
			"DRA driver gpu.nvidia.com publishes devices",
		},
		"mig-manager": {
			nodetest.NewAPI(),
			func(m *machine) { nodetest.AddProcess(m.t, m.config.procRoot, 4321, nodetest.RealMIGManager) },
			func(m *machine) error { return os.RemoveAll(filepath.Join(m.config.procRoot, "4321")) },
			"process nvidia-mig-manager of mig-manager runs here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, tt.api)
			tt.there(m)
			_, _ = m.start()
			awaitDevices(t, m.api, true, untainted)
			assert.Contains(t, nodetest.AwaitEvent(t, m.api, "OtherSystem", ""), tt.note)
			require.NoError(t, tt.gone(m))
			awaitDevices(t, m.api, false, untainted)
		})
	}
}

// A pod that calls itself mig-manager, in any namespace, changes nothing: who may create pods
// decides nothing about a node's GPUs.
func TestPodsDecideNothingAboutOwners(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "busybox", Labels: map[string]string{"app": "nvidia-mig-manager"}},
		Spec:       corev1.PodSpec{NodeName: nodetest.NodeName},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}))
	nodetest.AddProcess(t, m.config.procRoot, 17, nodetest.HostProcess{Comm: "nvidia-mig-mana", Caps: nodetest.DefaultCaps, User: nodetest.HostUser})
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	for _, action := range m.api.Actions() {
		assert.NotEqual(t, "pods", action.GetResource().Resource, "the plugin has no rights on pods")
	}
}

// Labels of mig-manager decide nothing: they stay when it is gone, and Tranche's controller can
// write its state.
func TestLabelsDecideNothingAboutOwners(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	_, err := m.api.CoreV1().Nodes().Patch(t.Context(), nodetest.NodeName, types.MergePatchType, []byte(`{"metadata":{"labels":{"nvidia.com/mig.config.state":"pending"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
}

// A node that loses the label of managed nodes is withdrawn when the last claim is released,
// and comes back with the label. Claims can be released in between.
func TestManagedNodes(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.ManagedNodes = labels.SelectorFromSet(labels.Set{"tranche.dev/managed": "true"})
	m.config.IgnoreOtherSystems = true
	label := func(value string) {
		_, err := m.api.CoreV1().Nodes().Patch(t.Context(), nodetest.NodeName, types.MergePatchType, []byte(`{"metadata":{"labels":{"tranche.dev/managed":`+value+`}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	k, _ := m.start()
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "OtherSystem", "does not have the labels tranche.dev/managed=true"), "label the node")
	assert.Empty(t, nodetest.SlicesOf(t, m.api, names.DriverName))
	label(`"true"`)
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", card0)
	k.mustPrepare(c)
	label("null")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool {
		return len(d.Taints) == 1 && d.Taints[0].Key == names.TaintOtherSystem && d.Taints[0].Value == "unmanaged"
	})
	require.Empty(t, k.unprepare(c))
	awaitNoSlices(t, m.api)
	label(`"true"`)
	awaitDevices(t, m.api, false, untainted)
}

func TestIgnoreOtherSystems(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI(nodetest.NVIDIASlice(resourceapi.Device{Name: "gpu-0"})))
	m.config.IgnoreOtherSystems = true
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
}
