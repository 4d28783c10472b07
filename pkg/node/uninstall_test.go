package node

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node/kubelet"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

const daemonSet = "tranche-kubelet-plugin"

func newUninstalled(t *testing.T) *machine {
	m := newMachine(t, nodetest.NewAPI())
	m.config.DaemonSet = "gpus/" + daemonSet
	m.config.NodeLabels = true
	setDaemonSet(t, m.api, false)
	return m
}

// setDaemonSet creates the DaemonSet of the plugin, or replaces it.
func setDaemonSet(t *testing.T, api *fake.Clientset, deleted bool) {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: daemonSet}}
	if deleted {
		set.DeletionTimestamp, set.Finalizers = &metav1.Time{Time: time.Now()}, []string{metav1.FinalizerDeleteDependents}
	}
	sets := api.AppsV1().DaemonSets("gpus")
	_ = sets.Delete(t.Context(), daemonSet, metav1.DeleteOptions{})
	_, err := sets.Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
}

func awaitNoSlices(t *testing.T, api *fake.Clientset) {
	t.Helper()
	require.Eventually(t, func() bool { return len(nodetest.SlicesOf(t, api, names.DriverName)) == 0 }, nodetest.Patience, nodetest.Tick, "not withdrawn")
}

// A plugin that is replaced leaves everything as it was; one whose DaemonSet is being deleted leaves
// nothing.
func TestUninstall(t *testing.T) {
	m := newUninstalled(t)
	label := func() string {
		node, err := m.api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		return node.Labels["nvidia.com/gpu.product"]
	}
	var unreachable atomic.Bool
	clientfake.React(&m.api.Fake, "get", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return unreachable.Load(), nil, errors.New("no")
	})
	for name, prepare := range map[string]func(){
		"updated": func() {},
		"no DaemonSet": func() {
			require.NoError(t, m.api.AppsV1().DaemonSets("gpus").Delete(t.Context(), daemonSet, metav1.DeleteOptions{}))
		},
		"no answer": func() { setDaemonSet(t, m.api, true); unreachable.Store(true) },
	} {
		_, stop := m.start()
		awaitSlices(t, m.api)
		require.Eventually(t, func() bool { return label() == "NVIDIA-H100-80GB-HBM3" }, nodetest.Patience, nodetest.Tick)
		prepare()
		stop()
		assert.NotEmpty(t, nodetest.SlicesOf(t, m.api, names.DriverName), name)
		assert.NotEmpty(t, label(), name)
		assert.DirExists(t, m.config.DataDir(), name)
		unreachable.Store(false)
		setDaemonSet(t, m.api, false)
	}

	_, stop := m.start()
	awaitSlices(t, m.api)
	require.Eventually(t, func() bool { return label() != "" }, nodetest.Patience, nodetest.Tick)
	setDaemonSet(t, m.api, true)
	stop()
	nodetest.AwaitEvent(t, m.api, "Uninstalling", "withdrawn")
	assert.Empty(t, nodetest.SlicesOf(t, m.api, names.DriverName))
	assert.Empty(t, label())
	assert.NoDirExists(t, m.config.DataDir())
	assert.Empty(t, m.files(m.config.CDIDir, "*"))
	assert.Empty(t, m.files(m.config.registrarDir(), "*"))
}

// A node on which something is held keeps what it takes to release it.
func TestUninstallWithHeldClaims(t *testing.T) {
	m := newUninstalled(t)
	k, stop := m.start()
	awaitSlices(t, m.api)
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	setDaemonSet(t, m.api, true)
	stop()
	assert.Empty(t, nodetest.SlicesOf(t, m.api, names.DriverName))
	assert.Equal(t, []string{small0}, m.partitions())
	assert.Len(t, m.files(filepath.Join(m.config.DataDir(), "claims"), "*.json"), 1)
	assert.FileExists(t, filepath.Join(m.config.DataDir(), "nvidia-cdi-hook"))

	// The next installation releases it.
	setDaemonSet(t, m.api, false)
	k, _ = m.start()
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
}

// A plugin whose driver is gone has only slices and files to remove.
func TestUninstallWithoutDriver(t *testing.T) {
	m := newUninstalled(t)
	_, stop := m.start()
	awaitSlices(t, m.api)
	stop()
	require.NotEmpty(t, nodetest.SlicesOf(t, m.api, names.DriverName))
	setDaemonSet(t, m.api, true)
	assert.True(t, m.config.retire(nodetest.Quiet(t.Context()), m.api, nil))
	assert.Empty(t, nodetest.SlicesOf(t, m.api, names.DriverName))
}

// A node without a GPU keeps nothing of a plugin that has ended, unless another
// one works there.
func TestLeaveIdleNode(t *testing.T) {
	dir := t.TempDir()
	c := &Config{NodeName: nodetest.NodeName, KubeletDir: filepath.Join(dir, "kubelet"), CDIDir: filepath.Join(dir, "cdi")}
	ctx := nodetest.Quiet(t.Context())
	require.NoError(t, c.leave(ctx), "there is nothing")
	unlock, err := kubelet.Lock(ctx, c.DataDir(), "a/b")
	require.NoError(t, err)
	require.NoError(t, c.leave(ctx))
	assert.DirExists(t, c.DataDir())
	unlock()

	record := filepath.Join(c.DataDir(), "claims", "uid.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(record), 0o700))
	require.NoError(t, os.WriteFile(record, nil, 0o600))
	require.NoError(t, c.leave(ctx))
	assert.FileExists(t, record, "a claim holds something")
	broken := record + ".broken"
	require.NoError(t, os.Rename(record, broken))
	require.NoError(t, c.leave(ctx))
	assert.FileExists(t, broken, "it may be of a claim that holds something")
	require.NoError(t, os.Remove(broken))
	require.NoError(t, c.leave(ctx))
	assert.NoDirExists(t, c.DataDir())
}
