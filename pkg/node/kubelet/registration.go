package kubelet

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registration notices when the kubelet registers the plugin.
//
// A kubelet that starts deletes all ResourceSlices of its node before it registers plugins. The
// kubeletplugin helper notices that after half a minute, in which no pod with a GPU can be
// scheduled. So the plugin publishes again when it is registered.
type Registration struct {
	// idle is set if the node has no GPUs.
	idle       atomic.Bool
	expected   atomic.Bool
	registered atomic.Bool
	// again is called each time the kubelet has registered the plugin.
	again func()
}

// Expect makes Ready fail until the kubelet has registered the plugin. again is called after each
// registration.
func (r *Registration) Expect(again func()) {
	r.again = again
	r.expected.Store(true)
}

// SetIdle makes Ready succeed without a registration: the node has no GPUs.
func (r *Registration) SetIdle() { r.idle.Store(true) }

// Interceptor intercepts the kubelet's calls to the registration service.
func (r *Registration) Interceptor(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	if status, ok := request.(*registerapi.RegistrationStatus); ok {
		r.registered.Store(status.PluginRegistered)
		if status.PluginRegistered {
			r.again()
		}
	}
	return response, err
}

// Ready says why the kubelet cannot use the plugin yet; nil if it can. A rolling update ends the
// old plugin when the new one is ready. A plugin on a node without GPUs is ready.
func (r *Registration) Ready() error {
	switch {
	case r.registered.Load():
		return nil
	case r.expected.Load():
		return errors.New("the kubelet has not registered the plugin yet")
	case r.idle.Load():
		return nil
	}
	return errors.New("the plugin has not checked the GPUs yet")
}
