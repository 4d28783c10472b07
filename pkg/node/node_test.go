package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// A node that is deleted and registered again has another UID. What the plugin writes
// would name an owner that is gone, so it ends, and starts over with the new one.
func TestNodeIsRegisteredAgain(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	m := s.machine
	ended := make(chan error, 1)
	begin := func() { go func() { ended <- Run(nodetest.Quiet(t.Context()), m.config, m.api) }() }
	await := func() error {
		select {
		case err := <-ended:
			return err
		case <-time.After(nodetest.Patience):
			require.Fail(t, "the plugin does not end")
			return nil
		}
	}
	nodes := m.api.CoreV1().Nodes()
	owners := func() map[string]bool {
		uids := map[string]bool{}
		for _, s := range nodetest.SlicesOf(t, m.api, "gpu.tranche.dev") {
			uids[string(s.OwnerReferences[0].UID)] = true
		}
		return uids
	}

	begin()
	m.register()
	require.Eventually(t, func() bool { return owners()["node-uid"] }, nodetest.Patience, nodetest.Tick)
	require.NoError(t, nodes.Delete(t.Context(), nodetest.NodeName, metav1.DeleteOptions{}))
	require.ErrorContains(t, await(), "node node-a (UID node-uid) was deleted: the plugin restarts")

	// What belonged to the node is for the garbage collector, which this API server
	// does not have.
	for _, slice := range nodetest.SlicesOf(t, m.api, "gpu.tranche.dev") {
		require.NoError(t, m.api.ResourceV1().ResourceSlices().Delete(t.Context(), slice.Name, metav1.DeleteOptions{}))
	}
	require.NoError(t, s.nodes.Tracker.Delete(v1beta1.GroupVersion.WithResource("gpunodes"), "", nodetest.NodeName))
	// It starts again before the node is there, and waits for it.
	begin()
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, UID: "second"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	k := m.register()
	require.Eventually(t, func() bool { return owners()["second"] && !owners()["node-uid"] }, nodetest.Patience, nodetest.Tick, "the slices have the new owner")
	require.Eventually(t, func() bool {
		n, err := s.get()
		return err == nil && len(n.OwnerReferences) == 1 && n.OwnerReferences[0].UID == "second"
	}, nodetest.Patience, nodetest.Tick, "the GPUNode has the new owner")
	k.works(nodetest.Allocate(t, m.api, "a", small0))

	// Both at once, as a watch that was interrupted sees it.
	node, err := nodes.Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	node.UID = "third"
	_, err = nodes.Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, await(), "node node-a was deleted and registered again (its UID was second and is now third)")
}
