package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func record(uid string) Record {
	return Record{
		Claim: ClaimRef{UID: types.UID(uid), Namespace: "team", Name: "claim-" + uid},
		State: Prepared,
		Pods:  []Pod{{Name: "pod-1", UID: "uid-1"}},
		Devices: []Device{{
			Request: "r", Pool: "node-a", Name: "gpu-0000-01-00-0-mig-1g-10gb-4", UUID: "MIG-1", Made: true, LoadID: "boot-1",
			Placement: gpu.Placement{GPU: "0000:01:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 4, Size: 1, Consumes: gpu.Counters{"memory-slice-4": 1}},
		}},
	}
}

func open(t *testing.T, dir string) (*Ledger, []Broken) {
	t.Helper()
	l, broken, err := Open(dir)
	require.NoError(t, err)
	return l, broken
}

func TestLedgerKeepsRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "claims")
	l, broken := open(t, dir)
	require.Empty(t, broken)
	require.NoError(t, l.Put(record("b")))
	require.NoError(t, l.Put(record("a")))
	changed := record("b")
	changed.State = Preparing
	require.NoError(t, l.Put(changed))

	for _, l := range []*Ledger{l, func() *Ledger { l, _ := open(t, dir); return l }()} {
		assert.Equal(t, []Record{record("a"), changed}, l.List(), "in the order of UIDs")
		got, ok := l.Get("b")
		assert.True(t, ok)
		assert.Equal(t, changed, got)
		_, ok = l.Get("c")
		assert.False(t, ok)
	}

	require.NoError(t, l.Delete("a"))
	require.NoError(t, l.Delete("a"), "a second time")
	l, _ = open(t, dir)
	assert.Equal(t, []Record{changed}, l.List())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary files stay")
	info, err := entries[0].Info()
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// What a caller does with a record does not change the ledger's.
func TestLedgerRecordsAreCopies(t *testing.T) {
	l, _ := open(t, t.TempDir())
	shared := func() Record {
		r := record("a")
		r.Devices[0].Amount, r.Devices[0].Before = &gpu.Amount{Memory: 1}, &gpu.Settings{ComputeMode: gpu.ComputeDefault}
		return r
	}
	change := func(r Record) {
		r.Devices[0].UUID, r.Pods[0].Name = "x", "x"
		r.Devices[0].Amount.Memory, r.Devices[0].Before.ComputeMode = 2, gpu.ComputeExclusive
	}
	r := shared()
	require.NoError(t, l.Put(r))
	change(r)
	got, _ := l.Get("a")
	change(got)
	change(l.List()[0])
	got, _ = l.Get("a")
	assert.Equal(t, shared(), got)
}

func TestOpenSetsBrokenFilesAside(t *testing.T) {
	good, err := Encode(record("x"))
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		data    string
		message string
	}{
		"empty":           {"", "no valid JSON"},
		"cut off":         {string(good[:len(good)/2]), "no valid JSON"},
		"noise":           {"\x00\x01\x02", "no valid JSON"},
		"another claim's": {string(good), "the file is named for claim a, but has the record of claim x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, _ := open(t, dir)
			require.NoError(t, l.Put(record("b")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte(tt.data), 0o600))

			l, broken := open(t, dir)
			require.Len(t, broken, 1)
			assert.Equal(t, types.UID("a"), broken[0].UID)
			require.ErrorContains(t, broken[0].Err, tt.message)
			kept, err := os.ReadFile(broken[0].Path)
			require.NoError(t, err)
			assert.Equal(t, tt.data, string(kept), "nothing of it is lost")
			assert.Equal(t, []Record{record("b")}, l.List(), "the others are there")

			require.NoError(t, l.Put(record("a")), "and the claim can be prepared again")
			_, broken = open(t, dir)
			assert.Empty(t, broken)
			require.NoError(t, l.Delete("a"))
			assert.NoFileExists(t, filepath.Join(dir, "a.json.broken"), "it is out of date")
		})
	}
}

func TestOpenIgnoresWhatIsNoRecord(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.json"), 0o700))
	for _, name := range []string{".a.json1234", "a.json.broken", "README"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	l, broken := open(t, dir)
	assert.Empty(t, broken)
	assert.Empty(t, l.List())
	assert.Empty(t, l.Unusable())
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.json")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, _, err := Open(file)
	require.ErrorContains(t, err, "create the folder of the ledger")

	require.NoError(t, os.Mkdir(file+".broken", 0o700))
	_, _, err = Open(dir)
	require.ErrorContains(t, err, "set the broken record "+file+" aside")
	assert.FileExists(t, file)
}

// A full disk: the record before stays whole, in memory as on disk.
func TestPutOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("a small tmpfs cannot be mounted (run as root): %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	l, _ := open(t, dir)
	require.NoError(t, l.Put(record("a")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 4096), 0o600))

	changed := record("a")
	changed.State = Preparing
	for _, r := range []Record{changed, record("b")} {
		err := l.Put(r)
		require.ErrorIs(t, err, unix.ENOSPC)
		require.ErrorContains(t, err, "write the record of claim team/claim-"+string(r.Claim.UID)+" to "+dir+" (is the disk full or read-only?)")
	}
	assert.Equal(t, []Record{record("a")}, l.List())
	l, broken := open(t, dir)
	assert.Empty(t, broken)
	assert.Equal(t, []Record{record("a")}, l.List())

	require.NoError(t, l.Delete("a"), "what is held can be released on a full disk")
}

func TestPutIntoMissingFolder(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir)
	require.NoError(t, os.RemoveAll(dir))
	require.ErrorContains(t, l.Put(record("a")), "is the disk full or read-only?")
	assert.Empty(t, l.List())
	require.Error(t, l.Delete("a"))
}

func TestRecordThatCannotBeRemoved(t *testing.T) {
	l, _ := open(t, t.TempDir())
	require.NoError(t, l.Put(record("a")))
	require.NoError(t, os.MkdirAll(filepath.Join(l.path("a")+brokenSuffix, "x"), 0o700))
	require.ErrorContains(t, l.Delete("a"), "remove the record of claim a")
	assert.Equal(t, []Record{record("a")}, l.List())
}

func TestLedgerConcurrently(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir)
	var wg sync.WaitGroup
	for n := range 12 {
		wg.Go(func() {
			uid := fmt.Sprintf("c%02d", n)
			for range 5 {
				assert.NoError(t, l.Put(record(uid)))
				_, ok := l.Get(types.UID(uid))
				assert.True(t, ok)
				l.List()
			}
			if n%2 == 1 {
				assert.NoError(t, l.Delete(types.UID(uid)))
			}
		})
	}
	wg.Wait()
	again, broken := open(t, dir)
	assert.Empty(t, broken)
	assert.Len(t, again.List(), 6)
	assert.Equal(t, l.List(), again.List())
}

// Records are found by their GPUs.
func TestRecordsOnAGPU(t *testing.T) {
	l, _ := open(t, filepath.Join(t.TempDir(), "claims"))
	both := record("b")
	both.Devices = append(both.Devices, both.Devices[0])
	both.Devices[1].Placement.GPU = "0000:02:00.0"
	released := record("c")
	released.Released = true
	for _, r := range []Record{record("a"), both, released} {
		require.NoError(t, l.Put(r))
	}
	uids := func(records []Record) (all []types.UID) {
		for _, r := range records {
			all = append(all, r.Claim.UID)
		}
		return all
	}
	assert.ElementsMatch(t, []types.UID{"a", "b", "c"}, uids(l.On([]string{"0000:01:00.0", "0000:02:00.0"})))
	assert.Equal(t, []types.UID{"b"}, uids(l.On([]string{"0000:02:00.0"})))
	assert.Empty(t, l.On(nil))
	assert.Equal(t, both.Devices[1:], l.DevicesOn("0000:02:00.0"))
	assert.ElementsMatch(t, []types.UID{"a", "b"}, uids(InUse(l.List())))
	require.NoError(t, l.Delete("a"), "who has read does not hold up changes")
	l.ReadAgain()
	refresh(t, l)

	monitor := record("d")
	monitor.Devices[0].Admin = true
	one, two := both.Devices[0].Placement, both.Devices[1].Placement
	assert.Equal(t, map[string][]gpu.Placement{one.GPU: {one, one}, two.GPU: {two}}, Held([]Record{record("a"), both, released, monitor}))
}
