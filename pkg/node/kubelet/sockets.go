package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// RemoveStaleSockets removes the sockets of plugins that were killed, among files that match the
// patterns. The names of sockets contain the UID of the pod, so no later plugin replaces them,
// and the kubelet would try to connect to them for ever.
func RemoveStaleSockets(ctx context.Context, patterns ...string) error {
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
			klog.FromContext(ctx).Info("Removed the socket of a plugin that was killed", "socket", socket)
		}
	}
	return nil
}

// isStale reports whether no process listens on the socket.
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
