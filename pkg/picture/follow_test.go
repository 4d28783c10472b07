package picture

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/scenes"
)

func TestProfileAsJSON(t *testing.T) {
	in := scenes.Switching()
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, in.Summary()))
	var m struct {
		Nodes []struct {
			Status *v1beta1.GPUNodeStatus
			GPUs   []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &m))
	require.Len(t, m.Nodes, 3)
	for i := range m.Nodes {
		assert.Equal(t, in.GPUNodes[i].Status.State, m.Nodes[i].Status.State, "the status is that of the GPUNode")
	}
	assert.Equal(t, "it does not answer", v1beta1.ProblemText(m.Nodes[0].Status.Node.GPUs[2].Problems))
	assert.NotNil(t, m.Nodes[1].GPUs, "none, not null")

	in.View.Nodes = []string{"node-b"}
	assert.Len(t, in.Summary().Nodes, 1)

	// Nodes without GPUs have plugins, too, and nothing to show.
	in.GPUNodes[1].Status.Node.GPUs = nil
	assert.Empty(t, in.Summary().Nodes)
}

// A cluster without GPUNodes is drawn as it was before there were any.
func TestWithoutGPUNodes(t *testing.T) {
	in := scenes.Following()
	in.GPUNodes = nil
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, in.Summary()))
	for _, key := range []string{`"status"`, `"problem"`} {
		assert.NotContains(t, b.String(), key)
	}
	assert.NotContains(t, draw(t, in, Screen{Width: 80}, false), "profile")
}
