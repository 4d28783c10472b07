package mps

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No process is ended with a daemon but NVIDIA's programs that it has started.
func TestServersOfADaemon(t *testing.T) {
	dir := t.TempDir()
	running := func(name string) *exec.Cmd {
		program := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nread line\n"), 0o755))
		cmd := exec.Command(program)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		_, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return cmd
	}
	cmd, script := running("nvidia-cuda-mps-server"), running("python")
	server, err := identify(cmd.Process.Pid)
	require.NoError(t, err)
	python, err := identify(script.Process.Pid)
	require.NoError(t, err)
	for _, test := range []struct {
		what   string
		daemon process
		of     int
		want   bool
	}{
		{"its server", server, server.PID, true},
		{"another program", python, python.PID, false},
		{"older than the daemon", process{server.PID, server.Start + 1, server.Boot}, server.PID, false},
		{"of another group", process{server.PID + 1, server.Start, server.Boot}, server.PID, false},
		{"of an earlier boot", process{server.PID, server.Start, "another"}, server.PID, false},
		{"ended", server, 1 << 22, false},
	} {
		is, err := test.daemon.hasServer(test.of)
		require.NoError(t, err)
		assert.Equal(t, test.want, is, test.what)
	}
	require.NoError(t, cmd.Process.Kill())
	require.NoError(t, awaitEnd(within(t), server), "although its parent has not noticed")
}
