package handoff

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registration watches the kubelet register the plugin.
//
// A kubelet that starts removes all slices of its node before it registers
// plugins again. The kubeletplugin helper would only notice after half a minute,
// in which no pod with a GPU can be scheduled, so registration is the signal to
// publish at once.
type Registration struct {
	// idle is set when there is nothing to register for.
	idle       atomic.Bool
	expected   atomic.Bool
	registered atomic.Bool
	// again is called each time that the kubelet has registered the plugin.
	again func()
}

// Expect says that the kubelet should register the plugin from now on.
func (r *Registration) Expect(again func()) {
	r.again = again
	r.expected.Store(true)
}

// SetIdle says that there is nothing to register for.
func (r *Registration) SetIdle() { r.idle.Store(true) }

// Interceptor sees the kubelet's calls to the registration service.
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

// Ready says why the kubelet cannot use the plugin yet: a rolling update ends
// the old plugin when the new one is ready. A plugin on a node without a GPU is
// ready, since there is nothing to do.
func (r *Registration) Ready() error {
	switch {
	case r.registered.Load():
		return nil
	case r.expected.Load():
		return errors.New("the kubelet has not registered the plugin yet")
	case r.idle.Load():
		return nil
	}
	return errors.New("the plugin has not looked at the GPUs yet")
}
