package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// registration is what the kubelet knows of the plugin.
type registration struct {
	// sockets is a pattern of the paths of the sockets on which plugins register.
	sockets string

	// mu protects what follows.
	mu   sync.Mutex
	conn *grpc.ClientConn
}

// watch registers each plugin that makes a socket, until ctx ends.
func (r *registration) watch(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var known time.Time
	for {
		if socket, made := r.socket(); made != known {
			if conn, err := register(ctx, socket); err == nil {
				r.set(conn)
				known = made
			}
		}
		select {
		case <-ctx.Done():
			r.set(nil)
			return nil
		case <-tick.C:
		}
	}
}

// socket is the path of the newest socket and when it was made; empty: there is none.
func (r *registration) socket() (newest string, made time.Time) {
	paths, _ := filepath.Glob(r.sockets)
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(made) {
			newest, made = path, info.ModTime()
		}
	}
	return newest, made
}

func (r *registration) set(conn *grpc.ClientConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close()
	}
	r.conn = conn
}

// client calls the plugin that has registered last.
func (r *registration) client() (drapb.DRAPluginClient, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil, fmt.Errorf("DRA driver %s is not registered", names.DriverName)
	}
	return drapb.NewDRAPluginClient(r.conn), nil
}

// register does what the kubelet does when it finds the socket of a plugin, and connects to it.
func register(ctx context.Context, socket string) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if socket == "" {
		return nil, nil // the plugin has gone
	}
	registrar, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer registrar.Close() //nolint:errcheck // it is only read
	registration := registerapi.NewRegistrationClient(registrar)
	info, err := registration.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return nil, err
	}
	if _, err := registration.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		return nil, err
	}
	return dial(info.Endpoint)
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}
