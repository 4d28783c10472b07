package node

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/node/hardwarereport"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestHardwareReport(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", small0))
	m.makeForeign(half0)

	var text bytes.Buffer
	require.NoError(t, hardwarereport.Print(t.Context(), m.config.DataDir(), &text, false))
	assert.Contains(t, text.String(), "claim team/claim-a, pod pod-a")
	assert.Contains(t, text.String(), "not made by Tranche: nvidia-smi mig -i "+address0)

	var told hardwarereport.Report
	var data bytes.Buffer
	require.NoError(t, hardwarereport.Print(t.Context(), m.config.DataDir(), &data, true))
	require.NoError(t, json.Unmarshal(data.Bytes(), &told))
	require.Len(t, told.GPUs, 2)
	assert.Len(t, told.GPUs[0].Devices, 2)
	assert.Equal(t, half0, told.GPUs[0].Devices[1].Name)
	assert.NotEmpty(t, told.GPUs[0].Devices[0].UUID)
	assert.Empty(t, told.GPUs[1].Devices)

	sockets := m.files(m.config.DataDir(), hardwarereport.Sockets)
	require.Len(t, sockets, 1)
	info, err := os.Stat(sockets[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "for root only")

	stop()
	require.ErrorContains(t, hardwarereport.Print(t.Context(), m.config.DataDir(), &text, false), "no plugin with GPUs is at work on this node")
	require.NoError(t, os.WriteFile(filepath.Join(m.config.DataDir(), "report-x.sock"), nil, 0o600))
	require.ErrorContains(t, hardwarereport.Print(t.Context(), m.config.DataDir(), &text, false), "ask the plugin")
}
