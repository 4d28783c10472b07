package client

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`), 0o600))
	config, err := Config(file, "tester/1")
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:6443", config.Host)
	assert.Equal(t, "tester/1", config.UserAgent)

	_, err = Config(file+".gone", "tester/1")
	require.ErrorContains(t, err, "find out how to reach the API server: ")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err = Config("", "tester/1")
	require.ErrorContains(t, err, "find out how to reach the API server: ")
}
