package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/nodetest"
)

// A tenant may give a process any name. Only one that could change MIG counts.
func TestRunsPrivileged(t *testing.T) {
	for name, tt := range map[string]struct {
		processes map[int]nodetest.HostProcess
		want      bool
	}{
		"nothing":                    {nil, false},
		"mig-manager":                {map[int]nodetest.HostProcess{4321: nodetest.RealMIGManager}, true},
		"beside one of a tenant":     {map[int]nodetest.HostProcess{17: {Comm: "nvidia-mig-mana", Caps: nodetest.DefaultCaps, User: nodetest.HostUser}, 4321: nodetest.RealMIGManager}, true},
		"root of a container":        {map[int]nodetest.HostProcess{17: {Comm: "nvidia-mig-mana", Caps: nodetest.DefaultCaps, User: nodetest.HostUser}}, false},
		"without any capability":     {map[int]nodetest.HostProcess{17: {Comm: "nvidia-mig-mana", Caps: 0, User: nodetest.HostUser}}, false},
		"root of its user namespace": {map[int]nodetest.HostProcess{17: {Comm: "nvidia-mig-mana", Caps: nodetest.AllCaps, User: nodetest.OtherUser}}, false},
		"other privileged processes": {map[int]nodetest.HostProcess{17: {Comm: "nvidia-mig-part", Caps: nodetest.AllCaps, User: nodetest.HostUser}, 18: {Comm: "nvidia-mig", Caps: nodetest.AllCaps, User: nodetest.HostUser}, 19: {Comm: "kubelet", Caps: nodetest.AllCaps, User: nodetest.HostUser}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := runsPrivileged(nodetest.FakeProc(t, tt.processes), "nvidia-mig-manager")
			require.NoError(t, err)
			assert.Equal(t, tt.want, runs)
		})
	}
}

// A program with a common name is known by its path.
func TestRunsPrivilegedByPath(t *testing.T) {
	other, tenant := nodetest.RealConfigManager, nodetest.RealConfigManager
	other.Exe, tenant.Caps = "/usr/bin/server", nodetest.DefaultCaps
	for name, tt := range map[string]struct {
		process nodetest.HostProcess
		want    bool
	}{
		"device config manager":      {nodetest.RealConfigManager, true},
		"another server":             {other, false},
		"one of a tenant":            {tenant, false},
		"a path that cannot be read": {nodetest.HostProcess{Comm: "server", Caps: nodetest.AllCaps, User: nodetest.HostUser}, false},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := runsPrivileged(nodetest.FakeProc(t, map[int]nodetest.HostProcess{17: tt.process}), nodetest.RealConfigManager.Exe)
			require.NoError(t, err)
			assert.Equal(t, tt.want, runs)
		})
	}
}

// Processes end while they are looked at; what cannot be read for another reason is said.
func TestRunsPrivilegedWithPartOfProc(t *testing.T) {
	root := nodetest.FakeProc(t, map[int]nodetest.HostProcess{17: nodetest.RealMIGManager})
	require.NoError(t, os.Remove(filepath.Join(root, "17", "status")))
	runs, err := runsPrivileged(root, "nvidia-mig-manager")
	require.NoError(t, err)
	assert.False(t, runs)

	require.NoError(t, os.Mkdir(filepath.Join(root, "17", "status"), 0o750))
	_, err = runsPrivileged(root, "nvidia-mig-manager")
	require.ErrorContains(t, err, "process 17: ")
	nodetest.AddProcess(t, root, 18, nodetest.RealMIGManager)
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
