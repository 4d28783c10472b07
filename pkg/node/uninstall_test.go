package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node/kubelet"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// order writes the order as `helm uninstall` does.
func order(t *testing.T, api *fake.Clientset, phase, force, beat string) {
	t.Helper()
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "tranche-uninstall"},
		Data:       map[string]string{"phase": phase, "force": force, "beat": beat},
	}
	maps := api.CoreV1().ConfigMaps("gpus")
	if _, err := maps.Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		_, err = maps.Create(t.Context(), c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func newUninstalled(t *testing.T) *machine {
	m := newMachine(t, nodetest.NewAPI())
	m.config.UninstallOrder = "gpus/tranche-uninstall"
	m.config.NodeLabels = true
	return m
}

func awaitNoSlices(t *testing.T, api *fake.Clientset) {
	t.Helper()
	require.Eventually(t, func() bool { return len(nodetest.SlicesOf(t, api, names.DriverName)) == 0 }, nodetest.Patience, nodetest.Tick, "not withdrawn")
}

// An order that is taken back leaves everything as it was; one that stands
// makes the plugin leave nothing.
func TestUninstall(t *testing.T) {
	m := newUninstalled(t)
	k, stop := m.start()
	awaitSlices(t, m.api)
	label := func() string {
		node, err := m.api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		return node.Labels["nvidia.com/gpu.product"]
	}
	require.Eventually(t, func() bool { return label() == "NVIDIA-H100-80GB-HBM3" }, nodetest.Patience, nodetest.Tick)

	order(t, m.api, "uninstalling", "false", "1")
	awaitNoSlices(t, m.api)
	nodetest.AwaitEvent(t, m.api, "Uninstalling", "withdrawn")
	assert.Empty(t, label())
	c := nodetest.Allocate(t, m.api, "a", small0)
	assert.Contains(t, k.refused(c), "Tranche is being uninstalled")
	k.registered() // the kubelet restarts
	assert.Empty(t, nodetest.SlicesOf(t, m.api, names.DriverName))

	order(t, m.api, "cancelled", "false", "2")
	awaitSlices(t, m.api)
	nodetest.AwaitEvent(t, m.api, "UninstallCancelled", "published again")
	require.Eventually(t, func() bool { return label() != "" }, nodetest.Patience, nodetest.Tick)
	k.works(c)

	order(t, m.api, "uninstalling", "false", "1")
	awaitNoSlices(t, m.api)
	stop()
	assert.NoDirExists(t, m.config.DataDir())
	assert.Empty(t, m.files(m.config.CDIDir, "*"))
	assert.Empty(t, m.files(m.config.registrarDir(), "*"))
}

// GPUs are withdrawn when nothing is held, and a node on which something is
// held keeps what it takes to release it.
func TestUninstallWithHeldClaims(t *testing.T) {
	m := newUninstalled(t)
	k, stop := m.start()
	awaitSlices(t, m.api)
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	order(t, m.api, "uninstalling", "false", "1")
	nodetest.AwaitEvent(t, m.api, "Uninstalling", "withdrawn")
	assert.NotEmpty(t, k.mustPrepare(c), "its containers may be restarted")
	assert.Len(t, nodetest.SlicesOf(t, m.api, names.DriverName), slicesOfTwoGPUs)

	order(t, m.api, "uninstalling", "true", "2")
	awaitNoSlices(t, m.api)
	stop()
	assert.Equal(t, []string{small0}, m.partitions())
	assert.Len(t, m.files(filepath.Join(m.config.DataDir(), "claims"), "*.json"), 1)
	assert.FileExists(t, filepath.Join(m.config.DataDir(), "nvidia-cdi-hook"))

	// The next installation releases it.
	m.config.UninstallOrder = ""
	k, _ = m.start()
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
}

// A plugin that starts while Tranche is uninstalled publishes nothing.
func TestStartDuringUninstallation(t *testing.T) {
	m := newUninstalled(t)
	order(t, m.api, "uninstalling", "false", "1")
	k, stop := m.start()
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "a", small0)), "Tranche is being uninstalled")
	stop()
	assert.Zero(t, nodetest.SliceWrites(m.api))
	assert.NoDirExists(t, m.config.DataDir())
}

// Whoever uninstalls may die: its order is good for a while only.
func TestOrderExpires(t *testing.T) {
	var u uninstallation
	start := time.Now()
	data := map[string]string{"phase": "uninstalling", "beat": "1"}
	assert.False(t, u.current(start).Active)
	u.take(&corev1.ConfigMap{Data: data}, start)
	assert.True(t, u.current(start.Add(names.UninstallRequestExpiry)).Active)
	u.take(&corev1.ConfigMap{Data: data}, start.Add(time.Second))
	assert.False(t, u.current(start.Add(names.UninstallRequestExpiry+time.Second)).Active, "the same order again is no sign of life")
	u.take(&corev1.ConfigMap{Data: map[string]string{"phase": "uninstalling", "beat": "2"}}, start.Add(names.UninstallRequestExpiry))
	assert.True(t, u.current(start.Add(names.UninstallRequestExpiry+time.Second)).Active)
	u.take(nil, start)
	assert.True(t, u.current(start.Add(names.UninstallRequestExpiry)).Active, "it goes with the installation")
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
