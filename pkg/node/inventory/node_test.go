package inventory

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// What is kept of the node is what is read of it.
func TestNodeIsKeptWithoutItsBulk(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-a", Labels: map[string]string{names.LabelProfile: "shared"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"large"}}}
	node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": {}}
	w := NewNode(kubefake.New(node), node, nil, nil)
	w.StartWithContext(t.Context())
	w.WaitForCacheSync(t.Context().Done())
	kept, err := w.Core().V1().Nodes().Lister().Get("node-a")
	require.NoError(t, err)
	assert.Empty(t, kept.ManagedFields)
	assert.Empty(t, kept.Status.Images)
	assert.Equal(t, node.Status.Allocatable, kept.Status.Allocatable)
	assert.Equal(t, node.Labels, w.Labels())
}

// The label of the node says which drivers are released for an upgrade. A value that releases none is told.
func TestDriversToUpgrade(t *testing.T) {
	for name, tt := range map[string]struct {
		labels   map[string]string
		released []gpu.Vendor
		unknown  bool
	}{
		"no label":    {map[string]string{"other": "nvidia"}, nil, false},
		"all drivers": {map[string]string{names.LabelDriverUpgrade: names.DriverUpgradeAll}, []gpu.Vendor{gpu.AMD, gpu.NVIDIA}, false},
		"one driver":  {map[string]string{names.LabelDriverUpgrade: "amd"}, []gpu.Vendor{gpu.AMD}, false},
		"unknown":     {map[string]string{names.LabelDriverUpgrade: "yes"}, nil, true},
		"empty":       {map[string]string{names.LabelDriverUpgrade: ""}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			value := tt.labels[names.LabelDriverUpgrade]
			w := NewNode(kubefake.New(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: tt.labels}}, nodetest.RealVendors(), nil)
			upgrades := w.Upgrades()
			assert.ElementsMatch(t, tt.released, slices.Collect(maps.Keys(upgrades)))
			for _, signal := range upgrades {
				assert.Equal(t, "the node's label "+names.LabelDriverUpgrade+"="+value, signal)
			}
			unknown := w.UnknownUpgrade()
			assert.Equal(t, tt.unknown, unknown != "")
			if tt.unknown {
				assert.Equal(t, "The label "+names.LabelDriverUpgrade+"="+value+" of this node releases no driver, so do not replace one yet: the value can be all, amd, nvidia", unknown)
			}
		})
	}
}

// What concerns the plugin of the changes of its node: the label for upgrades, and that the node is replaced.
func TestWatchOfTheNode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "uid-1"}}
	api := kubefake.New(node.DeepCopy())
	w := NewNode(api, node.DeepCopy(), nodetest.RealVendors(), nil)
	ended := make(chan error, 2)
	for range 2 { // the second call does nothing
		require.NoError(t, w.Watch(t.Context(), func(err error) { ended <- err }))
	}
	w.WaitForCacheSync(t.Context().Done())
	label := func(key, value string) func() bool {
		return func() bool {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
			_, err := api.CoreV1().Nodes().Update(t.Context(), node.DeepCopy(), metav1.UpdateOptions{})
			return assert.NoError(t, err) && w.Labels()[key] == value
		}
	}
	// Repeated, because a fake API server does not tell what changes before it is watched.
	require.Eventually(t, label("other", "nvidia"), 10*time.Second, 10*time.Millisecond)
	assert.Empty(t, w.Upgraded)
	for _, value := range []string{"nvidia", "of nobody"} {
		require.Eventually(t, label(names.LabelDriverUpgrade, value), 10*time.Second, 10*time.Millisecond)
		<-w.Upgraded
		assert.Empty(t, w.Upgraded, "once")
	}
	require.NoError(t, api.CoreV1().Nodes().Delete(t.Context(), "node-a", metav1.DeleteOptions{}))
	require.ErrorContains(t, <-ended, "node node-a (UID uid-1) was deleted: the plugin restarts")
	node.UID = "uid-2"
	_, err := api.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, <-ended, "node node-a was deleted and registered again (its UID was uid-1 and is now uid-2): the plugin restarts")
	assert.Empty(t, ended)
}

const labelProduct, labelCount, labelMemory = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory"

// Each vendor describes its own GPUs.
func TestLabelsOf(t *testing.T) {
	h100 := hardware.OfferedGPU{GPU: gpu.GPU{Vendor: gpu.NVIDIA, ProductName: "NVIDIA H100 80GB HBM3", Memory: 81559 << 20}}
	mi300x := hardware.OfferedGPU{GPU: gpu.GPU{Vendor: gpu.AMD, ProductName: "MI300X", Memory: 196592 << 20}}
	assert.Empty(t, LabelsOf(nodetest.RealVendors(), nil))
	assert.Equal(t, map[string]string{labelProduct: "NVIDIA-H100-80GB-HBM3", labelCount: "1", labelMemory: "81559", "nvidia.com/gpu.replicas": "0",
		"amd.com/gpu.product-name": "MI300X", "amd.com/gpu.vram": "192G"},
		LabelsOf(nodetest.RealVendors(), []hardware.OfferedGPU{h100, mi300x}))
	assert.Empty(t, LabelsOf(nil, []hardware.OfferedGPU{h100}))
}

func patches(api *fake.Clientset) (n int) {
	for _, a := range api.Actions() {
		if a.GetVerb() == "patch" && a.GetResource().Resource == "nodes" {
			n++
		}
	}
	return n
}

// The node is written when its labels change, and other labels are left alone.
func TestLabeler(t *testing.T) {
	api := nodetest.NewAPI()
	node := func() *corev1.Node {
		n, err := api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		return n
	}
	n := node()
	n.Labels = map[string]string{"zone": "a", "nvidia.com/mig.config": "all-balanced", labelProduct: "of-old", labelCount: "1", "nvidia.com/mig-1g.5gb.count": "7"}
	_, err := api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)

	l := NewLabeler(api, &Node{name: nodetest.NodeName, Vendors: nodetest.RealVendors()})
	wanted := map[string]string{labelCount: "8", labelMemory: "81559"}
	require.NoError(t, l.Update(t.Context(), wanted))
	require.NoError(t, l.Update(t.Context(), wanted))
	assert.Equal(t, map[string]string{"zone": "a", "nvidia.com/mig.config": "all-balanced", labelCount: "8", labelMemory: "81559"}, node().Labels)
	assert.Equal(t, 1, patches(api))

	again := NewLabeler(api, &Node{name: nodetest.NodeName, Vendors: nodetest.RealVendors()})
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, 1, patches(api), "a restart writes nothing")
	require.NoError(t, again.Update(t.Context(), nil))
	assert.Equal(t, map[string]string{"zone": "a", "nvidia.com/mig.config": "all-balanced"}, node().Labels)
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, "8", node().Labels[labelCount])
}

func TestRunningPods(t *testing.T) {
	const a, b, c, d = "0f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11", "1f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11", "2f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11", "3f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11"
	proc := t.TempDir()
	for pid, groups := range map[string]string{
		"1":     "0::/init.scope\n",
		"20":    "0::/../../kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0f8b5d2e_6c1a_4b61_9a6f_2f2f0c9d1e11.slice/cri-containerd-1234.scope\n",
		"21":    "12:devices:/kubepods/burstable/pod" + b + "/1234\n11:memory:/kubepods/burstable/pod" + b + "/1234\n0::/\n",
		"22":    "0::/kubepods.slice/kubepods-pod2f8b5d2e_6c1a_4b61_9a6f_2f2f0c9d1e11.slice/crio-12.scope/container\n",
		"23":    "0::/user.slice/" + d + "/x" + d + "/kubepods-pod" + d + "0.slice\n",
		"26":    "0::/kubepods/pod" + b + "/c/pod" + d + "\n", // a container makes groups below its own
		"acpi":  "0::/kubepods/pod" + d + "/x\n",
		"24/no": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, pid), 0o755))
		if groups != "" {
			require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte(groups), 0o600))
		}
	}
	pod := func(uid string) ledger.Pod { return ledger.Pod{Name: "p", UID: types.UID(uid)} }
	running, err := RunningPods(proc, []ledger.Pod{pod(d), pod(c), pod(b), pod(a), pod("")})
	require.NoError(t, err)
	assert.Equal(t, []ledger.Pod{pod(c), pod(b), pod(a)}, running)

	for pid, uid := range map[int]types.UID{1: "", 20: a, 21: b, 22: c, 23: "", 26: b, 24: "", 99: ""} {
		of, err := PodOf(proc, pid)
		require.NoError(t, err, pid)
		assert.Equal(t, uid, of, pid)
	}
	_, err = PodOf(filepath.Join(proc, "none"), 20)
	require.ErrorContains(t, err, "find the pod of process 20")

	running, err = RunningPods(filepath.Join(proc, "none"), nil)
	require.NoError(t, err, "nobody needs to be looked for")
	assert.Empty(t, running)
	_, err = RunningPods(filepath.Join(proc, "none"), []ledger.Pod{pod(a)})
	require.ErrorContains(t, err, "list the processes of the node")
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "25/cgroup"), 0o755))
	_, err = RunningPods(proc, []ledger.Pod{pod(a)})
	require.ErrorContains(t, err, "read which pod process 25 belongs to")
	_, err = PodOf(proc, 25)
	require.ErrorContains(t, err, "read which pod process 25 belongs to")
}
