package machine

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
)

const socketFile = "machine.sock"

// serve answers requests at the machine's socket.
func serve(processes *table, path string) error {
	server := rpc.NewServer()
	if err := server.RegisterName("Machine", processes); err != nil {
		return err
	}
	_ = os.Remove(path)
	var listener net.Listener
	err := withShortPath(path, func(short string) (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), "unix", short)
		return err
	})
	if err != nil {
		return fmt.Errorf("listen at %s: %w", path, err)
	}
	go server.Accept(listener)
	return nil
}

// call asks the machine in dir to do something.
func call(dir, method string, request, answer any) error {
	path := filepath.Join(dir, socketFile)
	var conn net.Conn
	err := withShortPath(path, func(short string) (err error) {
		conn, err = dialer.Dial("unix", short)
		return err
	})
	if err != nil {
		return fmt.Errorf("machine %s does not answer: %w", filepath.Base(dir), err)
	}
	client := rpc.NewClient(conn)
	defer client.Close()
	return client.Call("Machine."+method, request, answer)
}

// withShortPath calls f with a short name for path: the kernel takes names of
// sockets up to 107 characters only, and folders of tests are deep.
func withShortPath(path string, f func(short string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
