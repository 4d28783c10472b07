package handoff

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestRegistration(t *testing.T) {
	var r Registration
	require.EqualError(t, r.Ready(), "the plugin has not checked the GPUs yet")
	r.SetIdle()
	require.NoError(t, r.Ready(), "a node without a GPU is ready")
	again := 0
	r.Expect(func() { again++ })
	require.EqualError(t, r.Ready(), "the kubelet has not registered the plugin yet")

	call := func(request any) {
		_, err := r.Interceptor(t.Context(), request, nil, func(context.Context, any) (any, error) { return nil, nil })
		require.NoError(t, err)
	}
	var _ grpc.UnaryServerInterceptor = r.Interceptor
	call(&registerapi.InfoRequest{})
	call(&registerapi.RegistrationStatus{PluginRegistered: false, Error: "unsupported"})
	require.Error(t, r.Ready())
	assert.Zero(t, again)
	call(&registerapi.RegistrationStatus{PluginRegistered: true})
	call(&registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, r.Ready())
	assert.Equal(t, 2, again, "at each registration")
	call(&registerapi.RegistrationStatus{PluginRegistered: false})
	require.Error(t, r.Ready())
}
