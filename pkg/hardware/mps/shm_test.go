package mps

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mountsBelow lists the mounts below a folder that a process sees.
func mountsBelow(t *testing.T, process, dir string) []string {
	t.Helper()
	content, err := os.ReadFile("/proc/" + process + "/mountinfo")
	require.NoError(t, err)
	var found []string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, strings.TrimPrefix(fields[4], dir+"/"))
		}
	}
	return found
}

// What containers write to has a size, and what is full of it is nothing else's.
func TestWhatContainersWriteToIsLimited(t *testing.T) {
	m := newMachine(t)
	m.cfg.ShmSize = 2 << 20
	s := m.supervisor()
	m.start(s, Spec{ID: "gpu"})
	m.start(s, Spec{ID: "other"})
	for dir, size := range s.folder("gpu").mounts(m.cfg.ShmSize) {
		var fs unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &fs))
		assert.EqualValues(t, unix.TMPFS_MAGIC, fs.Type, dir)
		assert.Equal(t, size, int64(fs.Blocks)*fs.Bsize, dir)
		assert.Less(t, fs.Files, uint64(4096), dir)
		info, err := os.Stat(dir)
		require.NoError(t, err)
		assert.Equal(t, os.ModeDir|os.ModeSticky|0o777, info.Mode(), dir)
		err = os.WriteFile(filepath.Join(dir, "filler"), bytes.Repeat([]byte("x"), int(size)+1), 0o600)
		require.ErrorIs(t, err, unix.ENOSPC, dir)
	}
	assert.Equal(t, "0", firstOf(m.tell(s, "gpu", "get_server_list")), "the daemon still answers")
	require.NoError(t, os.WriteFile(filepath.Join(s.ShmDir("other"), "data"), make([]byte, 1<<20), 0o600), "another daemon's is another")
	require.NoError(t, os.WriteFile(filepath.Join(m.cfg.Dir, "data"), make([]byte, 4<<20), 0o600))

	assert.ElementsMatch(t, []string{"gpu/pipe", "gpu/shm", "other/pipe", "other/shm"}, mountsBelow(t, "self", m.cfg.Dir))
	require.NoError(t, s.Stop(within(t), "gpu"))
	assert.ElementsMatch(t, []string{"other/pipe", "other/shm"}, mountsBelow(t, "self", m.cfg.Dir))
}

// firstOf is the first word of an answer, 0 for none.
func firstOf(answer string) string {
	if fields := strings.Fields(answer); len(fields) > 0 {
		return fields[0]
	}
	return "0"
}

// A plugin that starts again, and a daemon that does, leave what containers have mounted.
func TestSharedMemoryOutlivesPluginAndDaemon(t *testing.T) {
	m := newMachine(t)
	m.cfg.ShmSize = 2 << 20
	s := m.supervisor()
	spec := Spec{ID: "gpu"}
	m.start(s, spec)
	data := filepath.Join(s.ShmDir("gpu"), "data")
	require.NoError(t, os.WriteFile(data, []byte("x"), 0o600))

	// Another size holds for daemons to come, and is no other daemon.
	m.cfg.ShmSize = 4 << 20
	s = m.supervisor()
	m.start(s, spec)
	require.FileExists(t, data)
	m.kill(m.process(s, "gpu"))
	require.NoError(t, s.Start(within(t), spec))
	require.NoError(t, s.Wait(within(t), "gpu"))
	require.FileExists(t, data)
	assert.ElementsMatch(t, []string{"gpu/pipe", "gpu/shm"}, mountsBelow(t, "self", m.cfg.Dir), "once each")
	require.NoError(t, s.Stop(within(t), "gpu"))
	assert.Empty(t, mountsBelow(t, "self", m.cfg.Dir))

	m.start(s, spec)
	require.NoFileExists(t, data)
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(s.ShmDir("gpu"), &fs))
	assert.Equal(t, int64(4<<20), int64(fs.Blocks)*fs.Bsize)
}

// Whatever a plugin leaves that dies between mounting and launching, or between
// unmounting and removing, goes.
func TestMountsThatACrashLeaves(t *testing.T) {
	for what, leave := range map[string]func(folder) error{
		"both mounted":  func(f folder) error { return mountTmpfs(f.pipe(), 1<<20) },
		"shm only":      func(folder) error { return nil },
		"mounted twice": func(f folder) error { return unix.Mount("tmpfs", f.shm(), "tmpfs", 0, "") },
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t)
			s := m.supervisor()
			f := s.folder("gpu")
			require.NoError(t, f.make())
			require.NoError(t, mountTmpfs(f.shm(), 1<<20))
			require.NoError(t, leave(f))
			require.NoError(t, s.Stop(within(t), "gpu"))
			assert.Empty(t, mountsBelow(t, "self", m.cfg.Dir))
			assert.Empty(t, entries(t, m.cfg.Dir))
		})
	}
}

// Memory that another mount namespace keeps a copy of the mount of is freed, too.
func TestUnmountFreesTheMemory(t *testing.T) {
	needsRoot(t)
	dir := filepath.Join(t.TempDir(), "shm")
	kept := t.TempDir()
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, mountTmpfs(dir, 1<<20))
	require.NoError(t, unix.Mount(dir, kept, "", unix.MS_BIND, ""))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(kept, unix.MNT_DETACH)) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), make([]byte, 1<<19), 0o600))
	require.NoError(t, unmountTmpfs(dir))
	assert.Empty(t, entries(t, kept))
	require.NoError(t, unmountTmpfs(dir), "a second time")
	require.NoError(t, unmountTmpfs(filepath.Join(dir, "none")))
}

func TestLabelForContainers(t *testing.T) {
	dir, selinux := t.TempDir(), t.TempDir()
	label := func() string {
		value := make([]byte, 100)
		n, err := unix.Lgetxattr(dir, "security.selinux", value)
		if err != nil {
			return ""
		}
		return string(bytes.TrimRight(value[:n], "\x00"))
	}
	before := label()
	require.NoError(t, labelForContainers(selinux, dir), "SELinux is off")
	assert.Equal(t, before, label())
	require.NoError(t, os.WriteFile(filepath.Join(selinux, "enforce"), []byte("1"), 0o600))
	if err := labelForContainers(selinux, dir); err != nil {
		t.Skipf("labels cannot be set here: %v", err)
	}
	assert.Equal(t, "system_u:object_r:container_file_t:s0", label())
	require.ErrorContains(t, labelForContainers(selinux, filepath.Join(dir, "none")), "so that containers can use it")
}
