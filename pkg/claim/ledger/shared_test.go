package ledger

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Two plugins share the folder during a rolling update.
func TestTwoProcessesShareTheLedger(t *testing.T) {
	dir := t.TempDir()
	older, _ := open(t, dir)
	newer, _ := open(t, dir)

	require.NoError(t, older.Put(record("a")))
	_, ok := newer.Get("a")
	assert.False(t, ok, "a copy in memory knows nothing of it yet")
	refresh(t, newer)
	got, ok := newer.Get("a")
	require.True(t, ok)
	assert.Equal(t, record("a"), got)

	require.NoError(t, newer.Put(record("b")))
	require.NoError(t, newer.Delete("a"))
	refresh(t, older)
	assert.Equal(t, []Record{record("b")}, older.List())
}

// A change of our own between two of somebody else's must not hide theirs.
func TestOwnChangesDoNotHideOthers(t *testing.T) {
	dir := t.TempDir()
	older, _ := open(t, dir)
	newer, _ := open(t, dir)

	require.NoError(t, older.Put(record("a")))
	require.NoError(t, newer.Put(record("b")))
	require.NoError(t, older.Put(record("c")))
	refresh(t, newer)
	assert.Equal(t, []Record{record("a"), record("b"), record("c")}, newer.List())
	refresh(t, older)
	assert.Equal(t, newer.List(), older.List())
}

// Refresh costs nothing while this process is alone, however many claims there
// are: it reads no file, not even one that is broken.
func TestRefreshReadsNothingWithoutNeed(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir)
	require.NoError(t, l.Put(record("a")))
	spoil(t, dir, "a")
	broken, err := l.Refresh()
	require.NoError(t, err)
	assert.Empty(t, broken)

	l.changes.add() // as another process does
	broken, err = l.Refresh()
	require.NoError(t, err)
	require.Len(t, broken, 1)
	assert.Equal(t, "a", string(broken[0].UID))
}

// noRoomForCounter makes a folder of a ledger whose counter cannot be shared until makeRoom is called:
// its place is on a disk without room.
func noRoomForCounter(t *testing.T, dir string) (makeRoom func()) {
	t.Helper()
	path := dir + generationSuffix
	// Space cannot be allocated there (EOPNOTSUPP).
	require.NoError(t, os.Symlink("/proc/self/comm", path))
	return func() { require.NoError(t, os.Remove(path)) }
}

func TestWithoutASharedCounterEverythingIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	noRoomForCounter(t, dir)
	l, _ := open(t, dir)
	require.False(t, l.changes.shared())
	other, _ := open(t, dir)
	require.NoError(t, other.Put(record("a")))
	refresh(t, l)
	assert.Len(t, l.List(), 1)
}

// A plugin that started on a full disk tells the next one of its changes, and learns of that one's,
// once there is room.
func TestCounterIsSharedLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	makeRoom := noRoomForCounter(t, dir)
	older, _ := open(t, dir)
	other, _ := open(t, dir)
	require.NoError(t, other.Put(record("a")), "not counted")
	makeRoom()
	require.NoError(t, older.Put(record("b")))
	refresh(t, older)
	assert.Len(t, older.List(), 2, "what was not counted is read")

	newer, _ := open(t, dir)
	require.NoError(t, older.Put(record("c")))
	refresh(t, newer)
	assert.Len(t, newer.List(), 3)
	require.NoError(t, newer.Delete("b"))
	refresh(t, older)
	refresh(t, other)
	assert.Equal(t, newer.List(), older.List())
	assert.Equal(t, newer.List(), other.List())
}

func TestCounterThatCannotBeShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	makeRoom := noRoomForCounter(t, dir)
	l, _ := open(t, dir)
	makeRoom()
	require.NoError(t, os.Mkdir(dir+generationSuffix, 0o700))
	_, _, err := Open(dir)
	for _, err := range []error{err, l.Put(record("a")), l.Delete("a")} {
		require.ErrorContains(t, err, "share the ledger's change counter "+dir+generationSuffix)
	}
}

// When a turn begins, everything is read, whatever was counted.
func TestReadAgain(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir)
	data, err := Encode(record("a"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), data, 0o600))
	refresh(t, l)
	require.Empty(t, l.List())
	l.ReadAgain()
	refresh(t, l)
	assert.Len(t, l.List(), 1)
}

// A file that cannot be read for a moment may be a good record: it stays, nothing on any GPU is
// given to others meanwhile, and it is read again although nobody has changed it.
func TestRecordThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir)
	require.NoError(t, l.Put(record("a")))
	require.NoError(t, l.Put(record("b")))
	path := l.path("a")
	require.NoError(t, os.Rename(path, path+".kept"))
	require.NoError(t, os.Symlink(path, path)) // ELOOP, for root too

	again, _ := open(t, dir)
	l.changes.add() // as another process does
	for _, l := range []*Ledger{l, again} {
		refresh(t, l)
		assert.Equal(t, []Record{record("b")}, l.List())
		assert.True(t, l.Has("a"))
		require.Len(t, l.Unusable(), 1)
		require.ErrorIs(t, l.Unusable()[0].Unreadable, unix.ELOOP)
		require.ErrorContains(t, l.CheckClaim("a"), "the record of claim a cannot be read, which is retried")
		require.Error(t, l.CheckGPUs([]string{"0000:ff:00.0"}), "it may hold any GPU")
	}
	require.NoError(t, os.Rename(path+".kept", path))
	for _, l := range []*Ledger{l, again} {
		refresh(t, l)
		assert.Equal(t, []Record{record("a"), record("b")}, l.List())
		assert.Empty(t, l.Unusable())
	}
}

func refresh(t *testing.T, l *Ledger) {
	t.Helper()
	broken, err := l.Refresh()
	require.NoError(t, err)
	require.Empty(t, broken)
}

// spoil makes the file of a record unreadable.
func spoil(t *testing.T, dir, uid string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, uid+fileSuffix), []byte("{"), 0o600))
}

// A folder that cannot be read is not one that has not changed.
func TestRefreshFailsUntilEverythingWasRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	l, _ := open(t, dir)
	require.NoError(t, l.Put(record("a")))
	l.ReadAgain()
	require.NoError(t, os.Rename(dir, dir+".away"))
	for range 2 {
		_, err := l.Refresh()
		require.ErrorContains(t, err, "read the folder of the ledger")
	}
	require.NoError(t, os.Rename(dir+".away", dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "a.json")))
	_, err := l.Refresh()
	require.NoError(t, err)
	assert.Empty(t, l.List())
}
