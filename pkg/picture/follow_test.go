package picture

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/scenes"
)

func TestProfileAsJSON(t *testing.T) {
	in := scenes.Switching()
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, in.Summary()))
	var m struct {
		Nodes []struct {
			Name    string
			Profile map[string]any
			GPUs    []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &m))
	require.Len(t, m.Nodes, 3)
	far := m.Nodes[0].Profile
	for key, want := range map[string]any{
		"desired": "all-1g.10gb", "applied": "whole", "source": "Label", "label": "tranche.dev/profile=all-1g.10gb", "upToDate": false, "state": "Draining", "since": "2026-11-20T13:55:00Z",
		"deadline": "2026-11-20T14:05:00Z", "from": "whole", "to": "all-1g.10gb", "attempt": 1.0,
	} {
		assert.Equal(t, want, far[key], key)
	}
	g := m.Nodes[0].GPUs[0]
	assert.Equal(t, map[string]any{"migMode": "Enabled"}, g["hardwareMode"])
	assert.Equal(t, "removal of 3g.40gb x 2, partitions 1g.10gb x 7", g["change"])
	assert.NotContains(t, m.Nodes[0].GPUs[2], "change")
	assert.Equal(t, "it does not answer", m.Nodes[0].GPUs[2]["problem"])
	assert.NotNil(t, m.Nodes[1].GPUs, "none, not null")
	assert.Equal(t, "other systems serve GPUs of the node, so Tranche does not change their modes and partitions: mig-manager", m.Nodes[2].Profile["conflict"])

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
	for _, key := range []string{`"profile"`, `"hardwareMode"`, `"change"`} {
		assert.NotContains(t, b.String(), key)
	}
	assert.NotContains(t, draw(t, in, Screen{Width: 80}, false), "profile")
}
