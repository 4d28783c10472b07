package telemetry

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	folders "github.com/tranche-dev/tranche/test/simulator/memory"
)

// kubelet answers which containers use claims.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	container := func(name string, claims ...string) *podresources.ContainerResources {
		c := &podresources.ContainerResources{Name: name}
		for _, claim := range claims {
			c.DynamicResources = append(c.DynamicResources, &podresources.DynamicResource{ClaimNamespace: "team", ClaimName: claim})
		}
		return c
	}
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Namespace: "team", Name: "web", Containers: []*podresources.ContainerResources{container("a", "one", "two"), container("b", "one"), container("c")}},
		{Namespace: "team", Name: "db", Containers: []*podresources.ContainerResources{container("a", "one")}},
	}}, nil
}

func TestContainersFromKubelet(t *testing.T) {
	socket := filepath.Join(folders.SocketDir(t), "kubelet.sock")
	_, err := ContainersFromKubelet(socket)(t.Context())
	require.ErrorContains(t, err, "ask the kubelet for the containers of claims at "+socket)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, kubelet{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	got, err := ContainersFromKubelet(socket)(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Containers{{"team", "web", "one"}: {"a", "b"}, {"team", "web", "two"}: {"a"}, {"team", "db", "one"}: {"a"}}, got)
}
