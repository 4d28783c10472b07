package machine

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the first process of a machine, as the
// launcher is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == InitCommand {
		if Init(os.Args[2]) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func startMachine(t *testing.T, spec Spec, listener *net.TCPListener) Machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces and mounts need root")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	machine, err := Start(ctx, spec, listener)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, machine.Stop()) })
	return machine
}

// in runs a shell script in the machine and returns what it prints.
func in(t *testing.T, machine Machine, script string) string {
	t.Helper()
	var output bytes.Buffer
	err := machine.Run(t.Context(), nil, &output, &output, nil, "sh", "-c", script)
	require.NoError(t, err, output.String())
	return strings.TrimSpace(output.String())
}

func TestMachineHasItsOwnFiles(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	require.NoError(t, os.Mkdir(own, 0o755))
	machine := startMachine(t, Spec{
		Name:     "test-machine",
		Dir:      filepath.Join(dir, "machine"),
		Overlays: []string{"/etc", "/var/lib"},
		Tmpfs:    []string{"/run"},
		Binds:    []Bind{{Source: own, Target: "/var/lib/tranche-test-bind"}, {Source: own, Target: "/run/read-only", ReadOnly: true}},
		Files:    map[string]string{"/proc/sys/kernel/panic": "4242\n", "/proc/sys/no/such/setting": "1"},
	}, nil)

	require.Equal(t, "test-machine", in(t, machine, "cat /proc/sys/kernel/hostname"))
	require.Equal(t, "4242", in(t, machine, "cat /proc/sys/kernel/panic"))
	require.Equal(t, "lo", in(t, machine, "ls /sys/class/net >/dev/null; cut -d: -sf1 /proc/net/dev | tr -d ' '"))
	in(t, machine, "echo x > /var/lib/tranche-test-bind/file; echo x > /etc/tranche-test-file; echo x > /run/tranche-test-file")
	require.FileExists(t, filepath.Join(own, "file"))
	require.NoFileExists(t, "/etc/tranche-test-file")
	require.NoFileExists(t, "/run/tranche-test-file")
	require.NoDirExists(t, "/var/lib/tranche-test-bind")
	require.Contains(t, in(t, machine, "echo x > /run/read-only/file || true"), "ead-only")
}

func TestMachineProcesses(t *testing.T) {
	dir := t.TempDir()
	machine := startMachine(t, Spec{Name: "m", Dir: filepath.Join(dir, strings.Repeat("deep", 30))}, nil)
	log := filepath.Join(dir, "log")
	shell := func(name, script string) Process {
		return Process{Name: name, Args: []string{"/bin/sh", "-c", script}, Log: log, Env: []string{"PATH=/bin:/usr/bin"}}
	}
	process := func(name string) Status {
		all, err := machine.Processes()
		require.NoError(t, err)
		for _, status := range all {
			if status.Name == name {
				return status
			}
		}
		return Status{}
	}
	ended := func(name string) func() bool { return func() bool { return process(name).Exit != "" } }

	_, err := machine.StartProcess(shell("short", "echo said; exit 7"))
	require.NoError(t, err)
	require.Eventually(t, ended("short"), time.Minute, 10*time.Millisecond)
	require.Equal(t, "ended with status 7", process("short").Exit)
	said, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "said\n", string(said))

	_, err = machine.StartProcess(shell("long", "sleep 1000"))
	require.NoError(t, err)
	_, err = machine.StartProcess(shell("long", "sleep 1000"))
	require.ErrorContains(t, err, "running already")
	require.NoError(t, machine.StopProcess("long", 5*time.Second))
	require.Contains(t, process("long").Exit, "signal 15")
	require.NoError(t, machine.StopProcess("long", 5*time.Second), "a second time")

	_, err = machine.StartProcess(shell("deaf", "trap '' TERM; echo deaf now; while :; do sleep 1; done"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		said, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(said), "deaf now")
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, machine.StopProcess("deaf", 50*time.Millisecond))
	require.Contains(t, process("deaf").Exit, "signal 9")

	_, err = machine.StartProcess(Process{Name: "none", Args: []string{"/no/such/program"}, Log: log})
	require.ErrorContains(t, err, "/no/such/program")
}

// TestStopEndsEverything is why a machine is made of namespaces: what a
// container runtime has left behind ends with it.
func TestStopEndsEverything(t *testing.T) {
	machine := startMachine(t, Spec{Name: "m", Dir: filepath.Join(t.TempDir(), "m")}, nil)
	in(t, machine, "setsid sleep 54321  >/dev/null 2>&1 &")
	require.Eventually(t, func() bool { return len(hostProcesses(t, "sleep\x0054321")) > 0 }, time.Minute, time.Millisecond)
	require.NoError(t, machine.Stop())
	require.Empty(t, hostProcesses(t, "sleep\x0054321"))
	require.Error(t, machine.Run(t.Context(), nil, io.Discard, io.Discard, nil, "true"))
	_, err := machine.Processes()
	require.ErrorContains(t, err, "does not answer")
}

func TestMachinesReachEachOtherAndTheHostReachesThem(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer listener.Close()
	router := startMachine(t, Spec{
		Name: "router", Dir: filepath.Join(dir, "router"),
		Addresses: []string{"10.77.0.1/32", "10.78.0.1/32"},
		Forward:   []string{"10.78.0.1:80"}, ForwardTo: "10.77.0.2:8080",
	}, listener)
	for number, name := range []string{"a", "b"} {
		machine := startMachine(t, Spec{Name: name, Dir: filepath.Join(dir, name), Addresses: []string{"10.77.9.9/32"}}, nil)
		link := Link{Device: name, Router: "10.77.0.1", Address: []string{"10.77.0.2", "10.77.0.3"}[number], Subnet: []string{"10.77.1.0/24", "10.77.2.0/24"}[number]}
		require.NoError(t, Connect(router, machine, link))
		require.NoError(t, Connect(router, machine, link), "again, as after a reboot")
		if name == "a" {
			serveIn(t, machine, "10.77.0.2:8080")
			continue
		}
		for _, target := range []string{"10.77.0.2:8080", "10.78.0.1:80"} {
			require.Equal(t, "from a machine", getIn(t, machine, target), target)
		}
	}
	response, err := http.Get("http://" + listener.Addr().String())
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "from a machine", string(body))
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces and mounts need root")
	}
	dir := filepath.Join(t.TempDir(), "m")
	machine, err := Start(t.Context(), Spec{Name: "m", Dir: dir, Binds: []Bind{{Source: "/no/such/folder", Target: "/x"}}}, nil)
	require.ErrorContains(t, err, "/no/such/folder")
	require.False(t, machine.Running())
}

// serveIn answers HTTP requests at an address of the machine. The listener is
// made in the machine and belongs to its network wherever it is used.
func serveIn(t *testing.T, machine Machine, address string) {
	t.Helper()
	var listener net.Listener
	require.NoError(t, machine.enter(func() (err error) {
		listener, err = net.Listen("tcp4", address)
		return err
	}))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "from a machine")
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
}

func getIn(t *testing.T, machine Machine, address string) string {
	t.Helper()
	var conn net.Conn
	require.NoError(t, machine.enter(func() (err error) {
		conn, err = net.DialTimeout("tcp4", address, 5*time.Second)
		return err
	}))
	defer conn.Close()
	_, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	return body
}

func hostProcesses(t *testing.T, command string) []string {
	t.Helper()
	var found []string
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), command) {
			found = append(found, file)
		}
	}
	return found
}
