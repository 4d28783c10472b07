package hardware

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/test/hardware/cuda"
)

// asClient is set for this program when it runs as a CUDA program; it holds an order.
const asClient = "TRANCHE_HARDWARE_TEST_CLIENT"

// chunk is how much a client allocates at a time.
const chunk = 64 << 20

// order is what a client does.
type order struct {
	// Library is libcuda's path, or its name where the loader finds it.
	Library string
	// Shm is mounted at /dev/shm, as in a container with a share; empty: nothing is.
	Shm string
	// Group is the folder of the control group that it enters first; empty: it stays in its own.
	Group string
	// Most is how much it allocates if nobody stops it, in bytes.
	Most int64
}

// sight is what a client saw.
type sight struct {
	Client cuda.Client
	// Allocated is in bytes. Refused: it was not given more.
	Allocated int64
	Refused   bool
	Error     string
}

// client runs an order, tells what it saw, and holds what it has until its input
// ends.
func client(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	s, err := o.carryOut()
	if err != nil {
		s.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func (o order) carryOut() (s sight, err error) {
	if o.Shm != "" {
		if err := unix.Mount(o.Shm, "/dev/shm", "", unix.MS_BIND, ""); err != nil {
			return s, fmt.Errorf("mount %s at /dev/shm: %w", o.Shm, err)
		}
	}
	if o.Group != "" {
		if err := os.WriteFile(filepath.Join(o.Group, "cgroup.procs"), []byte("0"), 0); err != nil {
			return s, fmt.Errorf("enter control group %s: %w", o.Group, err)
		}
	}
	g, err := cuda.Open(o.Library)
	if errors.Is(err, cuda.ErrOutOfMemory) {
		s.Refused = true // the context alone is too large
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Client = *g
	if err := g.Compute(); err != nil {
		return s, err
	}
	for s.Allocated < o.Most {
		err := g.Allocate(chunk)
		if errors.Is(err, cuda.ErrOutOfMemory) {
			s.Refused = true
			return s, nil
		}
		if err != nil {
			return s, err
		}
		s.Allocated += chunk
	}
	return s, nil
}

// startClient runs a CUDA program with variables like CUDA_VISIBLE_DEVICES, and
// returns what it saw. It holds its memory until end, or the test's.
func startClient(t *testing.T, m *machine, o order, env ...string) (s sight, end func()) {
	t.Helper()
	o.Library = m.cuda
	text, err := json.Marshal(o)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(m.ctx(t), self)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CUDA_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, asClient+"="+string(text)), env...)
	if o.Shm != "" {
		// A mount of its own, that nobody else sees.
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "the client ends without a word")
	require.NoError(t, json.Unmarshal([]byte(line), &s))
	require.Empty(t, s.Error)
	t.Logf("a client with %v sees %s with %d multiprocessors, and allocates %d MiB (refused: %t)",
		env, s.Client.UUID, s.Client.Multiprocessors, s.Allocated>>20, s.Refused)
	return s, end
}
