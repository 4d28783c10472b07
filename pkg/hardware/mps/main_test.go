package mps

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// tools is the program that stands in for NVIDIA's, built once.
var tools string

// startAndDie makes this program one that starts a daemon and ends at once.
const startAndDie = "start-and-die"

// asHost and asPlugin make it process 1 of a machine, and a plugin on it.
const (
	asHost   = "as-host"
	asPlugin = "as-plugin"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case LaunchCommand:
			os.Exit(Launch(os.Args[2:]))
		case asHost:
			os.Exit(hostWith(os.Args[2]))
		case asPlugin:
			os.Exit(pluginWith(os.Args[2]))
		case startAndDie:
			os.Exit(startAndDieWith(os.Args[2]))
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run() // needsRoot skips the tests that use the tools
	}
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	tools = filepath.Join(dir, "tools")
	build := exec.Command("go", "build", "-o", tools, "../../../test/simulator/cmd/simulated-nvidia-tools")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the stand-in for NVIDIA's programs: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// needsRoot skips a test whose daemons have mounts of their own.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
}

// machine is a host with NVIDIA's programs.
type machine struct {
	*testing.T
	root string
	cfg  Config
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	needsRoot(t)
	root := memory.SocketDir(t)
	m := &machine{T: t, root: root, cfg: Config{
		Dir: filepath.Join(root, "mps"), DriverRoot: filepath.Join(root, "driver"),
		Stand: 20 * time.Second, Grace: 2 * time.Second,
	}}
	t.Cleanup(m.stopAll)
	m.install(nvtools.Programs()...)
	m.faults("startDelay: 0s")
	return m
}

func (m *machine) install(programs ...string) {
	bin := filepath.Join(m.root, nvtools.DriverBin)
	require.NoError(m, os.MkdirAll(bin, 0o755))
	for _, name := range programs {
		require.NoError(m, exec.Command("cp", tools, filepath.Join(bin, name)).Run())
	}
}

// faults are lines of the key mps.
func (m *machine) faults(lines ...string) {
	text := "mps:\n  " + strings.Join(lines, "\n  ") + "\n"
	require.NoError(m, os.WriteFile(filepath.Join(m.root, "faults.yaml"), []byte(text), 0o644))
}

// supervisor is that of a new plugin.
func (m *machine) supervisor() *Supervisor { return New(m.cfg) }

func (m *machine) stopAll() {
	s := m.supervisor()
	ids, err := s.List()
	require.NoError(m, err)
	for _, id := range ids {
		if idPattern.MatchString(id) {
			require.NoError(m, s.Stop(context.Background(), id))
		}
	}
}

// start starts a daemon and waits until it is ready.
func (m *machine) start(s *Supervisor, spec Spec) {
	m.Helper()
	ctx := within(m.T)
	require.NoError(m, s.Start(ctx, spec))
	require.NoError(m, s.Wait(ctx, spec.ID))
}

// tell is the client of NVIDIA's, as a container with the pipe folder runs it.
func (m *machine) tell(s *Supervisor, id, command string) string {
	m.Helper()
	cmd := exec.CommandContext(within(m.T), filepath.Join(m.root, nvtools.DriverBin, nvtools.ControlProgram))
	cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + s.PipeDir(id)}
	cmd.Stdin = strings.NewReader(command + "\n")
	out, err := cmd.CombinedOutput()
	require.NoError(m, err, string(out))
	return strings.TrimSpace(string(out))
}

// process is that of a daemon.
func (m *machine) process(s *Supervisor, id string) process {
	m.Helper()
	p, _, err := s.folder(id).process()
	require.NoError(m, err)
	return p
}

// kill ends a daemon as the kernel would, and waits until it is gone.
func (m *machine) kill(p process) {
	m.Helper()
	require.False(m, p.hasEnded())
	require.NoError(m, syscall.Kill(p.PID, syscall.SIGKILL))
	require.NoError(m, awaitEnd(within(m.T), p))
}

// within is a context that ends before the test's patience does.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// startAndDieWith starts a daemon and ends without waiting for anything.
func startAndDieWith(text string) int {
	var order struct {
		Config Config
		Spec   Spec
	}
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return 2
	}
	if err := New(order.Config).Start(context.Background(), order.Spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
