package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Files that Start hands to Init.
const (
	readyFD    = 3 // Init writes what went wrong, or nothing, and closes it
	goFD       = 4 // Init waits for a byte from here: it has been written down
	listenerFD = 5 // a listener in the host's network namespace
)

// Init is the first process of the machine in dir. It returns when the machine
// could not be set up; otherwise it ends with the machine.
func Init(dir string) error {
	// Signals that a terminal sends to whoever started us are not for us.
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGPIPE)
	ready := os.NewFile(readyFD, "ready")
	defer ready.Close()
	for _, fd := range []int{readyFD, goFD, listenerFD} {
		syscall.CloseOnExec(fd)
	}
	// If Start was killed before it wrote down who we are, nobody would ever
	// end us: the pipe is then closed without a byte.
	if read, err := syscall.Read(goFD, make([]byte, 1)); read != 1 {
		return fmt.Errorf("whoever started this machine has gone: %w", err)
	}
	syscall.Close(goFD)
	table, err := setUp(dir)
	if err != nil {
		fmt.Fprint(ready, err)
		return err
	}
	ready.Close()
	table.reap()
	return nil
}

func setUp(dir string) (*table, error) {
	spec, err := readSpec(dir)
	if err != nil {
		return nil, err
	}
	if err := mountAll(spec); err != nil {
		return nil, err
	}
	if err := syscall.Sethostname([]byte(spec.Name)); err != nil {
		return nil, fmt.Errorf("set host name: %w", err)
	}
	if err := setUpLoopback(spec.Addresses); err != nil {
		return nil, err
	}
	if err := forwardAll(spec); err != nil {
		return nil, err
	}
	processes := newTable()
	if err := serve(processes, filepath.Join(dir, socketFile)); err != nil {
		return nil, err
	}
	return processes, nil
}

func setUpLoopback(addresses []string) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("start the loopback device: %w", err)
	}
	for _, address := range addresses {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		if err := netlink.AddrAdd(loopback, parsed); err != nil {
			return fmt.Errorf("add address %s: %w", address, err)
		}
	}
	// Pods and other machines are reached by way of this one.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("allow forwarding: %w", err)
	}
	return nil
}

func forwardAll(spec Spec) error {
	if spec.ForwardTo == "" {
		return nil
	}
	fromHost, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return fmt.Errorf("take over the host's listener: %w", err)
	}
	go forward(fromHost, spec.ForwardTo)
	for _, address := range spec.Forward {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		go forward(listener, spec.ForwardTo)
	}
	return nil
}
