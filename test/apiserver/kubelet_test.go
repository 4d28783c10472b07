package apiserver

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node"
)

// kubelet speaks to a plugin that is registered.
type kubelet struct {
	t   *testing.T
	dra drapb.DRAPluginClient
}

// register does what the kubelet does when it finds the plugin's socket.
func register(t *testing.T, config *node.Config) *kubelet {
	t.Helper()
	socket := filepath.Join(config.KubeletDir, "plugins_registry", names.DriverName+"-reg.sock")
	require.Eventually(t, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}, patience, glance, "the plugin makes no socket")
	registration := registerapi.NewRegistrationClient(dial(t, socket))
	info, err := registration.GetInfo(t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	_, err = registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	return &kubelet{t: t, dra: drapb.NewDRAPluginClient(dial(t, info.Endpoint))}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// prepare prepares a claim, and returns the CDI devices of its containers.
func (k *kubelet) prepare(claim *resourceapi.ResourceClaim) (cdiDevices []string) {
	k.t.Helper()
	response, err := k.dra.NodePrepareResources(k.t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{reference(claim)}})
	require.NoError(k.t, err)
	answer := response.Claims[string(claim.UID)]
	require.NotNil(k.t, answer)
	require.Empty(k.t, answer.Error)
	for _, d := range answer.Devices {
		cdiDevices = append(cdiDevices, d.CdiDeviceIds...)
	}
	return cdiDevices
}

// unprepare releases a claim. It is called while the test waits, so it returns errors.
func (k *kubelet) unprepare(ctx context.Context, claim *resourceapi.ResourceClaim) (problem string, err error) {
	response, err := k.dra.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{reference(claim)}})
	if err != nil {
		return "", err
	}
	return response.Claims[string(claim.UID)].GetError(), nil
}

func reference(claim *resourceapi.ResourceClaim) *drapb.Claim {
	return &drapb.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}
}
