package nodetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// HostProcess is a process as /proc shows it.
type HostProcess struct {
	Comm string
	// Exe is the path of the program, empty: none can be read.
	Exe string
	// Caps are the effective capabilities, User is the user namespace.
	Caps uint64
	User int
}

const (
	// HostUser is the host's user namespace.
	HostUser = 4026531837
	// OtherUser is the user namespace of a container.
	OtherUser = 4026532999
	// AllCaps are all capabilities.
	AllCaps = 1<<41 - 1
	// DefaultCaps are those of a container that is root and not privileged.
	DefaultCaps = 0xa80425fb
)

// RealMIGManager is mig-manager as it runs: on the host, with all capabilities.
var RealMIGManager = HostProcess{Comm: "nvidia-mig-mana", Caps: AllCaps, User: HostUser}

// RealConfigManager is AMD's device config manager as it runs.
var RealConfigManager = HostProcess{Comm: "server", Exe: "/home/amd/bin/server", Caps: AllCaps, User: HostUser}

// FakeProc is a /proc with these processes, beside the one that reads it.
func FakeProc(t *testing.T, processes map[int]HostProcess) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "proc")
	for pid, p := range processes {
		AddProcess(t, root, pid, p)
	}
	AddProcess(t, root, 1, HostProcess{Comm: "tranche-kubelet", Caps: AllCaps, User: HostUser})
	require.NoError(t, os.Symlink("1", filepath.Join(root, "self")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys"), 0o750))
	return root
}

// AddProcess adds a process to a fake /proc.
func AddProcess(t *testing.T, root string, pid int, p HostProcess) {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "ns"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(p.Comm+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), fmt.Appendf(nil, "Name:\t%s\nUid:\t0\t0\t0\t0\nCapPrm:\t%016x\nCapEff:\t%016[2]x\nCapBnd:\t%016x\n", p.Comm, p.Caps, uint64(AllCaps)), 0o600))
	if p.Exe != "" {
		require.NoError(t, os.Symlink(p.Exe, filepath.Join(dir, "exe")))
	}
	require.NoError(t, os.Symlink(fmt.Sprintf("user:[%d]", p.User), filepath.Join(dir, "ns", "user")))
}
