package ledger

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func TestWithoutASharedCounterEverythingIsRead(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir)
	require.NoError(t, l.changes.close())
	l.changes = &generation{}
	other, _ := open(t, dir)
	require.NoError(t, other.Put(record("a")))
	refresh(t, l)
	assert.Len(t, l.List(), 1)
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
