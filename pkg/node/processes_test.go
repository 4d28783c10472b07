package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostProcess is a process as /proc shows it.
type hostProcess struct {
	comm string
	// caps are the effective capabilities, user is the user namespace.
	caps uint64
	user int
}

const (
	hostUser, otherUser = 4026531837, 4026532999
	allCaps             = 1<<41 - 1
	// defaultCaps are those of a container that is root and not privileged.
	defaultCaps = 0xa80425fb
)

var realMIGManager = hostProcess{"nvidia-mig-mana", allCaps, hostUser}

// fakeProc is a /proc with these processes, beside the one that reads it.
func fakeProc(t *testing.T, processes map[int]hostProcess) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "proc")
	for pid, p := range processes {
		addProcess(t, root, pid, p)
	}
	addProcess(t, root, 1, hostProcess{"tranche-kubelet", allCaps, hostUser})
	require.NoError(t, os.Symlink("1", filepath.Join(root, "self")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys"), 0o750))
	return root
}

func addProcess(t *testing.T, root string, pid int, p hostProcess) {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "ns"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(p.comm+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), fmt.Appendf(nil, "Name:\t%s\nUid:\t0\t0\t0\t0\nCapPrm:\t%016x\nCapEff:\t%016[2]x\nCapBnd:\t%016x\n", p.comm, p.caps, uint64(allCaps)), 0o600))
	require.NoError(t, os.Symlink(fmt.Sprintf("user:[%d]", p.user), filepath.Join(dir, "ns", "user")))
}

// A tenant may give a process any name. Only one that could change MIG counts.
func TestRunsPrivileged(t *testing.T) {
	for name, tt := range map[string]struct {
		processes map[int]hostProcess
		want      bool
	}{
		"nothing":                    {nil, false},
		"mig-manager":                {map[int]hostProcess{4321: realMIGManager}, true},
		"beside one of a tenant":     {map[int]hostProcess{17: {"nvidia-mig-mana", defaultCaps, hostUser}, 4321: realMIGManager}, true},
		"root of a container":        {map[int]hostProcess{17: {"nvidia-mig-mana", defaultCaps, hostUser}}, false},
		"without any capability":     {map[int]hostProcess{17: {"nvidia-mig-mana", 0, hostUser}}, false},
		"root of its user namespace": {map[int]hostProcess{17: {"nvidia-mig-mana", allCaps, otherUser}}, false},
		"other privileged processes": {map[int]hostProcess{17: {"nvidia-mig-part", allCaps, hostUser}, 18: {"nvidia-mig", allCaps, hostUser}, 19: {"kubelet", allCaps, hostUser}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := runsPrivileged(fakeProc(t, tt.processes), "nvidia-mig-manager")
			require.NoError(t, err)
			assert.Equal(t, tt.want, runs)
		})
	}
}

// Processes end while they are looked at; what cannot be read for another reason is said.
func TestRunsPrivilegedWithPartOfProc(t *testing.T) {
	root := fakeProc(t, map[int]hostProcess{17: realMIGManager})
	require.NoError(t, os.Remove(filepath.Join(root, "17", "status")))
	runs, err := runsPrivileged(root, "nvidia-mig-manager")
	require.NoError(t, err)
	assert.False(t, runs)

	require.NoError(t, os.Mkdir(filepath.Join(root, "17", "status"), 0o750))
	_, err = runsPrivileged(root, "nvidia-mig-manager")
	require.ErrorContains(t, err, "process 17: ")
	addProcess(t, root, 18, realMIGManager)
	runs, err = runsPrivileged(root, "nvidia-mig-manager")
	require.NoError(t, err)
	assert.True(t, runs)

	m := processes{proc: root, programs: []string{"nvidia-mig-manager"}}
	changed, err := m.look()
	require.NoError(t, err)
	assert.True(t, changed)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "18")))
	changed, err = m.look()
	require.Error(t, err)
	assert.False(t, changed)
	assert.NotEmpty(t, m.running, "what was seen last counts")
}

// The real /proc can be read this way.
func TestThisMachinesProcesses(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	require.NoError(t, err)
	runs, err := runsPrivileged("/proc", string(comm[:len(comm)-1]))
	require.NoError(t, err)
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	var caps uint64
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "CapEff:\t%x", &caps)
	}
	assert.Equal(t, caps&capSysAdmin != 0, runs)
}
