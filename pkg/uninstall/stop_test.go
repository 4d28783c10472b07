package uninstall

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// An API server answers a change of the scale with a Scale, not with the Deployment.
func TestScale(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, "PATCH /apis/apps/v1/namespaces/gpus/deployments/tranche-controller/scale", r.Method+" "+r.URL.Path)
		assert.Equal(t, "application/merge-patch+json", r.Header.Get("Content-Type"))
		assert.JSONEq(t, `{"spec":{"replicas":0}}`, string(body))
		w.Header().Set("Content-Type", "application/json")
		_, err = io.WriteString(w, `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"tranche-controller"},"spec":{},"status":{"replicas":2}}`)
		assert.NoError(t, err)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	c := &Config{Client: client, Namespace: "gpus"}
	require.NoError(t, c.scale(t.Context(), "tranche-controller", 0))
}
