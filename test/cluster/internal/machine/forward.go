package machine

import (
	"io"
	"net"
	"sync"
	"time"
)

// dialer gives up on a peer that does not answer.
var dialer = net.Dialer{Timeout: 10 * time.Second}

// forward passes every connection on to target, until the listener is closed.
func forward(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := dialer.Dial("tcp", target)
			if err != nil {
				return // the client sees its connection closed
			}
			defer server.Close()
			both := sync.WaitGroup{}
			both.Go(func() { pass(server, client) })
			both.Go(func() { pass(client, server) })
			both.Wait()
		}()
	}
}

// pass copies one direction and then says that nothing more will come, so that
// the other direction can finish: `kubectl exec` needs that.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
