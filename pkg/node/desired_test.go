package node

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// A plugin whose node the controller has not looked at leaves GPUs shared as they are.
func TestSharingStaysUntilTheControllerDecides(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.profile("{sharing: {replicas: 4}}")
	_, stop := m.start()
	awaitReplicas(t, m.api, fraction0, 250)
	stop()
	require.NoError(t, os.Remove(m.config.profileFile()))

	s := steer(m)
	_, stop = s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	awaitReplicas(t, m.api, fraction0, 250)
	node, err := s.get()
	require.NoError(t, err)
	node.Status.State = v1alpha1.Idle // a node of the control plane, of which it wants nothing
	require.NoError(t, s.nodes.Tracker.Update(v1alpha1.GroupVersion.WithResource("gpunodes"), node, ""))
	awaitReplicas(t, m.api, fraction0, 100)

	require.Equal(t, v1alpha1.TaskDone, s.ask(v1alpha1.Applying, nothing, snapshot(t, "two", "[{sharing: {replicas: 2}}]")).Phase)
	awaitReplicas(t, m.api, fraction0, 500)
	stop()
	s.start()
	awaitReplicas(t, m.api, fraction0, 500)
}

// Where the API server does not know GPUNodes, the plugin publishes everything and serves
// claims. Once their definition is there, it creates its own.
func TestGPUNodesAreDefinedLater(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	var defined atomic.Bool
	undefine(s.nodes, &defined)
	k, _ := s.start()
	awaitDevices(t, s.api, false, untainted)
	k.works(nodetest.Allocate(t, s.api, "a", half0))
	defined.Store(true)
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
}
