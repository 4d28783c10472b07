package node

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registration watches the kubelet register the plugin.
//
// A kubelet that starts removes all slices of its node before it registers
// plugins again. The kubeletplugin helper would only notice after half a minute,
// in which no pod with a GPU can be scheduled, so registration is the signal to
// publish at once.
type registration struct {
	expected   atomic.Bool
	registered atomic.Bool
	// again is called each time that the kubelet has registered the plugin.
	again func()
}

// expect says that the kubelet should register the plugin from now on.
func (r *registration) expect(again func()) {
	r.again = again
	r.expected.Store(true)
}

// interceptor sees the kubelet's calls to the registration service.
func (r *registration) interceptor(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	if status, ok := request.(*registerapi.RegistrationStatus); ok {
		r.registered.Store(status.PluginRegistered)
		if status.PluginRegistered {
			r.again()
		}
	}
	return response, err
}

// ready says why the kubelet cannot use the plugin yet. A plugin on a node
// without a GPU is ready: there is nothing to do.
func (r *registration) ready() error {
	if r.expected.Load() && !r.registered.Load() {
		return errors.New("the kubelet has not registered the plugin yet")
	}
	return nil
}
