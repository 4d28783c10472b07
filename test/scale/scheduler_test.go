package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
)

// One slow round moves neither the figure nor the times that are shown.
func TestCompared(t *testing.T) {
	r := compared([]float64{0.03, 0.06, 0.03}, []float64{0.05, 0.05, 0.06})
	assert.InDelta(t, 0.6, r.Value, 1e-9)
	assert.Equal(t, "30.0 against 50.0 ms; 3 rounds, 0.50 to 1.20", r.Seen)
}

// Both layouts answer every workload, on a node with the same GPUs.
func TestLayoutsServeTheWorkloads(t *testing.T) {
	inv, err := models.LoadInventory(scheduledInventory)
	require.NoError(t, err)
	gpus, err := nodes.NVIDIAGPUs(t.Context(), inv, "node", t.TempDir())
	require.NoError(t, err)
	classes, err := allocator.Classes("../../" + renderedChart)
	require.NoError(t, err)
	for _, l := range layouts {
		published, err := l.publish("node-000", gpus)
		require.NoError(t, err)
		names := sets.New[string]()
		for _, slice := range published {
			names.Insert(slice.Name)
			assert.Equal(t, l.driver, slice.Spec.Driver)
		}
		assert.Len(t, names, len(published), "each slice is an object of its own")
		scheduler := allocator.New(nodes.ForDriver(classes, l.driver), published)
		for _, w := range workloads {
			grant, err := scheduler.Allocate(t.Context(), "node-000", allocator.Claim("claim", allocator.Request("gpu", w.class, 1)))
			require.NoError(t, err)
			require.NotNil(t, grant, "%s: %s", l.name, w.name)
		}
	}
}
