// Package memory gives tests folders where t.TempDir does not serve.
package memory

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// shm is where Linux keeps files in memory.
const shm = "/dev/shm"

// TempDir is a folder for the files of a simulated machine, in memory where that can be, and
// removed at the end of the test. ext4 does not use the inodes of files that were just removed
// again (recently_deleted in fs/ext4/ialloc.c) and looks through them for each new file, and such
// machines replace files by the thousand. MPS daemons have another /dev/shm and see nothing of it.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(shm, "simulated")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// SocketDir is a folder for sockets, removed at the end of the test. The path of a socket has at
// most 107 bytes: t.TempDir has the test's name in it, and TMPDIR may be long.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tr")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
