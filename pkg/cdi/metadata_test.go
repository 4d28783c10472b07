package cdi

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestMetadataFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with_separator")
	require.NoError(t, os.Mkdir(dir, 0o750))
	file := func(name string) string { return filepath.Join(dir, name) }
	released := map[types.UID]bool{}
	m := MetadataFiles{Held: func(claim types.UID) bool { return !released[claim] }}
	for _, name := range []string{"d_metadata_u1_r0.json", "d_metadata_u1_r1.json", "d_metadata_u2_r0.json", "metadata.json"} {
		require.NoError(t, m.WriteFile(file(name), []byte("{}"), 0o644))
	}
	info, err := os.Stat(file("d_metadata_u1_r0.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	assert.Len(t, m.written, 2, "only what the helper looks for is remembered")

	// What was written by this process is known without a look.
	require.NoError(t, os.WriteFile(file("d_metadata_u1_r9.json"), nil, 0o600))
	names, err := m.Glob(file("d_metadata_u1_*.json"))
	require.NoError(t, err)
	assert.Equal(t, []string{file("d_metadata_u1_r0.json"), file("d_metadata_u1_r1.json")}, names)

	// For a claim of an earlier process there is a look.
	names, err = m.Glob(file("d_metadata_u1_*.json"))
	require.NoError(t, err)
	assert.Len(t, names, 3)

	// A release was faster than the helper: nothing stays behind.
	released["u4"] = true
	require.ErrorContains(t, m.WriteFile(file("d_metadata_u4_r0.json"), nil, 0o644), "claim u4 was released")
	require.NoFileExists(t, file("d_metadata_u4_r0.json"))
	assert.NotContains(t, m.written, file("d_metadata_u4"))

	// A folder that was removed is made again.
	require.NoError(t, m.WriteFile(file("gone/d_metadata_u3_r0.json"), nil, 0o644))
	require.FileExists(t, file("gone/d_metadata_u3_r0.json"))

	require.ErrorContains(t, m.WriteFile(file("metadata.json/d_metadata_u5_r0.json"), nil, 0o644), "mkdir ")
	require.Error(t, m.WriteFile(file("gone"), nil, 0o644), "a folder is in its place")
	assert.NotContains(t, m.written, file("metadata.json/d_metadata_u5"))
}

// The kubelet may release a claim while the answer to its Prepare is still being written.
func TestMetadataIsRemovedWhileItIsWritten(t *testing.T) {
	m := MetadataFiles{Held: func(types.UID) bool { return true }}
	folder := filepath.Join(t.TempDir(), "team_claim-a")
	var wg sync.WaitGroup
	for _, request := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range 100 {
				assert.NoError(t, m.WriteFile(filepath.Join(folder, request, "metadata.json"), []byte("{}"), 0o644))
			}
		})
	}
	written := make(chan struct{})
	go func() { wg.Wait(); close(written) }()
	for {
		assert.NoError(t, m.RemoveAll(folder))
		select {
		case <-written:
			return
		default:
		}
	}
}

// Once a claim is released, no file of it comes into being, not even for a moment: neither of a
// write that begins later, nor of one that is under way.
func TestMetadataOfAClaimThatIsBeingReleased(t *testing.T) {
	dir := t.TempDir()
	later, underWay := filepath.Join(dir, "d_metadata_u1_r0.json"), filepath.Join(dir, "d_metadata_u2_r0.json")
	var m MetadataFiles
	found := make(chan []string, 1)
	m.Held = func(claim types.UID) bool {
		if claim == "u1" {
			assert.NoFileExists(t, later)
			return false
		}
		// The release begins now: it has deleted the record, and looks for files.
		go func() {
			names, err := m.Glob(filepath.Join(dir, "d_metadata_u2_*.json"))
			assert.NoError(t, err)
			found <- names
		}()
		return true
	}
	require.ErrorContains(t, m.WriteFile(later, []byte("{}"), 0o644), "claim u1 was released")
	require.NoFileExists(t, later)
	require.NoError(t, m.WriteFile(underWay, []byte("{}"), 0o644))
	assert.Equal(t, []string{underWay}, <-found)
	assert.Empty(t, m.written)
}
