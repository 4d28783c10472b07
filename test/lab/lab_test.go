package lab

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStart(t *testing.T) {
	began := time.Now()
	lap := func(what string) { t.Logf("%6.2fs %s", time.Since(began).Seconds(), what); began = time.Now() }
	c, err := Start(t.Context(), Options{Assets: os.Getenv(AssetsVariable), Chart: "../../deployments/helm/tranche"})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Stop()); lap("stop") }()
	lap("start")
	stop, err := c.StartController(t.Context(), DefaultController())
	require.NoError(t, err)
	lap("controller")
	for _, n := range [][2]string{{"node-a", "h100x8"}, {"node-b", "l4x4"}, {"node-c", "mi300x8"}} {
		node, err := c.AddNode(t.Context(), n[0], "../../pkg/publish/models/inventories/"+n[1]+".yaml", nil)
		require.NoError(t, err)
		require.NoError(t, node.StartPlugin())
		lap("node " + n[0])
		defer func() { require.NoError(t, node.Remove(t.Context())); lap("remove") }()
	}
	require.Eventually(t, func() bool {
		n, err := c.Tranche.GPUNodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		ready := 0
		for i := range n.Items {
			if n.Items[i].Status.State == "Idle" && n.Items[i].Status.Node != nil && n.Items[i].Status.Node.Count > 0 {
				ready++
			}
		}
		return ready == 3
	}, time.Minute, 20*time.Millisecond)
	lap("idle")
	require.NoError(t, stop())
	lap("stop controller")
}
