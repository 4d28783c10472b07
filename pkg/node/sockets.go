package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// removeStaleSockets removes the sockets of plugins that were killed. Each pod
// has sockets of its own name, so nobody else takes them away, and the kubelet
// would try to reach them for ever.
func removeStaleSockets(ctx context.Context, c *Config) error {
	patterns := []string{
		filepath.Join(c.registrarDir(), gpu.DriverName+"*-reg.sock"),
		filepath.Join(c.DataDir(), "dra*.sock"),
		filepath.Join(c.DataDir(), reportSockets),
	}
	for _, pattern := range patterns {
		sockets, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("look for sockets of plugins that were killed: %w", err)
		}
		for _, socket := range sockets {
			if !isStale(ctx, socket) {
				continue
			}
			if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove the socket of a plugin that was killed: %w", err)
			}
			klog.FromContext(ctx).Info("Removed the socket of a plugin that was killed", "socket", strings.TrimPrefix(socket, c.KubeletDir))
		}
	}
	return nil
}

// isStale tells whether nobody listens on the socket any more.
func isStale(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", socket)
	if err == nil {
		connection.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
