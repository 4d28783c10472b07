package mps

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	mountsV2 = "22 27 0:21 / /proc rw,relatime - proc proc rw\n" +
		"35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	mountsV1 = "36 24 0:31 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n" +
		"37 36 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"38 36 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
		"39 36 0:34 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
		"40 36 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)

func TestMovesOut(t *testing.T) {
	made := func(to string) move { return move{to: to, make: true} }
	for what, test := range map[string]struct {
		groups, mounts string
		want           []move
	}{
		"version 2, systemd": {
			"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-2.scope\n", mountsV2,
			[]move{made("/sys/fs/cgroup/tranche-mps/gpu")},
		},
		"version 2, cgroupfs, a cluster below a group of its own": {
			"0::/tranche-1/node-a/kubepods/besteffort/pod1/2\n", mountsV2,
			[]move{made("/sys/fs/cgroup/tranche-1/node-a/tranche-mps/gpu")},
		},
		"version 1": {
			"4:cpu,cpuacct:/kubepods/pod1/2\n3:cpuset:/kubepods/pod1/2\n1:name=systemd:/kubepods/pod1/2\n0::/kubepods/pod1/2\n", mountsV1,
			[]move{
				made("/sys/fs/cgroup/cpu,cpuacct/tranche-mps/gpu"), {to: "/sys/fs/cgroup/cpuset"},
				made("/sys/fs/cgroup/systemd/tranche-mps/gpu"), made("/sys/fs/cgroup/unified/tranche-mps/gpu"),
			},
		},
		"a hierarchy of which a part is mounted": {
			"0::/box/kubepods/pod1/2\n", "35 24 0:30 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			[]move{made("/sys/fs/cgroup/tranche-mps/gpu")},
		},
		"mounted twice": {
			"0::/kubepods/pod1/2\n", mountsV2 + "36 24 0:30 / /run/cgroup rw - cgroup2 cgroup2 rw\n",
			[]move{made("/sys/fs/cgroup/tranche-mps/gpu")},
		},
		"another part is mounted": {"0::/box/kubepods/pod1/2\n", "35 24 0:30 /boxes /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", nil},
		"in no pod":               {"0::/system.slice/containerd.service\n", mountsV2, nil},
		"not mounted":             {"4:memory:/kubepods/pod1/2\n", mountsV1, nil},
		"nothing":                 {"", "", nil},
		"nonsense":                {"x\n0:\n::\n", "x\n- cgroup2\n", nil},
	} {
		t.Run(what, func(t *testing.T) {
			hierarchies, err := parseHierarchies(strings.NewReader(test.mounts))
			assert.Equal(t, what == "nonsense", err != nil, "%v", err)
			assert.Equal(t, test.want, movesOut(parseMemberships(test.groups), hierarchies, "gpu"))
		})
	}
}

func FuzzMovesOut(f *testing.F) {
	f.Add("0::/kubepods/pod1/2\n", mountsV2)
	f.Add("3:cpuset:/a/kubepods.slice/b\n", mountsV1)
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		hierarchies, _ := parseHierarchies(strings.NewReader(mounts)) // none of nonsense
		for _, m := range movesOut(parseMemberships(groups), hierarchies, "gpu") {
			if m.make {
				assert.Equal(t, filepath.Join(groupsName, "gpu"), filepath.Join(filepath.Base(filepath.Dir(m.to)), filepath.Base(m.to)))
			}
		}
	})
}

// A daemon leaves the groups of the plugin's pod, and those that are made for it end with it, whoever
// is in them.
func TestDaemonLeavesThePod(t *testing.T) {
	m := newMachine(t)
	root := filepath.Join(writableHierarchy(t), "tranche-mps-test-"+strconv.Itoa(os.Getpid()))
	pod, group := filepath.Join(root, "kubepods/pod1"), filepath.Join(root, groupsName, "gpu")
	require.NoError(t, os.MkdirAll(pod, 0o755))
	t.Cleanup(func() { _, _, _ = os.Remove(pod), os.Remove(filepath.Dir(pod)), os.Remove(root) })
	order, err := json.Marshal(map[string]any{"Config": m.cfg, "Spec": Spec{ID: "gpu"}})
	require.NoError(t, err)
	plugin := exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, pod, os.Args[0], startAndDie, string(order))
	out, err := plugin.CombinedOutput()
	require.NoError(t, err, string(out))
	s := m.supervisor()
	require.Eventually(t, func() bool { return s.Status("gpu").Ready }, time.Minute, 10*time.Millisecond)
	inside, err := inGroup(group, m.process(s, "gpu").PID)
	require.NoError(t, err)
	assert.True(t, inside)

	member := exec.Command("sleep", "1000")
	require.NoError(t, member.Start())
	defer member.Wait()
	defer member.Process.Kill()
	p, err := identify(member.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0o644))
	require.NoError(t, s.Stop(within(t), "gpu"))
	assert.NoDirExists(t, filepath.Dir(group), "nor the group of all")
	assert.True(t, p.hasEnded())
}

// Folders stand for groups: a process goes into one by its file, and is told of one that it cannot enter.
func TestEnterGroup(t *testing.T) {
	dir := t.TempDir()
	made := move{to: filepath.Join(dir, groupsName, "gpu"), make: true}
	require.NoError(t, made.enter())
	file := filepath.Join(made.to, "cgroup.procs")
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "0\n", string(written), "the process that writes")
	for _, m := range []move{{to: filepath.Join(dir, "none")}, {to: filepath.Join(file, "gpu"), make: true}} {
		require.ErrorContains(t, m.enter(), "move the MPS daemon to control group "+m.to)
	}
}

// Folders stand for groups: what cannot be read or removed is reported, what is gone is not.
func TestGroupThatCannotBeEnded(t *testing.T) {
	folder := t.TempDir()
	gone := filepath.Join(folder, "gone")
	require.NoError(t, killGroup(gone))
	require.NoError(t, removeGroup(gone))

	group := filepath.Join(folder, groupsName, "gpu")
	require.NoError(t, os.MkdirAll(filepath.Join(group, "cgroup.procs"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(group, "cgroup.kill"), 0o755))
	assert.ErrorContains(t, killGroup(group), "cgroup.procs")
	assert.ErrorContains(t, removeGroup(group), "remove the MPS daemon's control group")

	s := New(Config{Dir: t.TempDir(), Grace: time.Millisecond})
	leavePID(t, s.folder("gpu"), Spec{ID: "gpu"}, process{})
	require.NoError(t, s.folder("gpu").write("cgroups", controlGroups{Groups: []string{group}}))
	require.ErrorContains(t, s.Stop(t.Context(), "gpu"), "stop MPS daemon gpu: ")
	assert.DirExists(t, string(s.folder("gpu")), "the next Stop finds its groups")

	other := filepath.Join(folder, groupsName, "other")
	require.NoError(t, os.Mkdir(other, 0o755))
	require.NoError(t, removeGroup(other))
	assert.DirExists(t, group, "the group of all has another")
}

// writableHierarchy is one of this machine's in which root can make groups.
func writableHierarchy(t *testing.T) string {
	t.Helper()
	mounts, err := os.Open("/proc/self/mountinfo")
	require.NoError(t, err)
	defer mounts.Close()
	hierarchies, err := parseHierarchies(mounts)
	require.NoError(t, err)
	for _, h := range hierarchies {
		dir := filepath.Join(h.Mountpoint, "tranche-mps-test-"+strconv.Itoa(os.Getpid()))
		if filepath.Base(h.Mountpoint) == "cpuset" || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		return h.Mountpoint
	}
	t.Fatal("no hierarchy of control groups in which root can make a group: mount one at /sys/fs/cgroup")
	return ""
}
