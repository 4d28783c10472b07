package disk

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

type count struct{ N int }

func storeIn(dir string) *Store[count] {
	return &Store[count]{
		Path: filepath.Join(dir, "count.json"), Lock: filepath.Join(dir, "count.lock"),
		Check: func(c *count) error {
			if c.N < 0 {
				return errors.New("negative")
			}
			return nil
		},
		Clone: func(c *count) *count { d := *c; return &d },
	}
}

func TestNoChangeIsLost(t *testing.T) {
	dir := t.TempDir()
	stores := []*Store[count]{storeIn(dir), storeIn(dir)}
	assert.False(t, stores[0].Existed())
	none, err := stores[0].Read()
	require.NoError(t, err)
	assert.Nil(t, none)
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			assert.NoError(t, stores[i%2].Update(func(c *count) (*count, error) {
				if c == nil {
					c = &count{}
				}
				c.N++
				return c, nil
			}))
		})
	}
	wait.Wait()
	for _, s := range stores {
		c, err := s.Read()
		require.NoError(t, err)
		assert.Equal(t, 40, c.N)
		assert.True(t, s.Existed())
	}
}

func TestRefusedChangeChangesNothing(t *testing.T) {
	s := storeIn(t.TempDir())
	one := func(*count) (*count, error) { return &count{N: 1}, nil }
	require.NoError(t, s.Update(one))
	_, id, err := s.ReadID()
	require.NoError(t, err)
	refused := errors.New("refused")
	for _, answer := range []error{refused, nil} {
		assert.ErrorIs(t, s.Update(func(c *count) (*count, error) { c.N = 2; return nil, answer }), answer)
	}
	c, same, err := s.ReadID()
	require.NoError(t, err)
	assert.Equal(t, id, same)
	assert.Equal(t, 1, c.N)
	require.NoError(t, s.Update(one))
	_, other, err := s.ReadID()
	require.NoError(t, err)
	assert.NotEqual(t, id, other, "the same content is another version")
}

func TestBrokenStateSaysWhatToDo(t *testing.T) {
	for content, want := range map[string]string{"{": "unexpected end", `{"N": -1}`: "negative"} {
		s := storeIn(t.TempDir())
		require.NoError(t, os.WriteFile(s.Path, []byte(content), 0o600))
		_, err := s.Read()
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "remove the file to start afresh")
		assert.Error(t, s.Update(func(c *count) (*count, error) { return c, nil }))
	}
}

func TestFreeMajors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices")
	require.NoError(t, os.WriteFile(path, []byte("Character devices:\n1195 odd\n1197 odder\n\nBlock devices:\n1196 sd\n"), 0o600))
	free, err := FreeMajors(path, 3)
	require.NoError(t, err)
	assert.Equal(t, []int{1196, 1198, 1199}, free)
}

func TestDeviceNode(t *testing.T) {
	n := DeviceNode{Path: filepath.Join(t.TempDir(), "dri/renderD128"), Mode: 0o660, GID: 992, Major: 1195, Minor: 128}
	plain, err := n.Make()
	require.NoError(t, err)
	if plain {
		t.Skip("device nodes need root")
	}
	stat := func() (st unix.Stat_t) {
		require.NoError(t, unix.Lstat(n.Path, &st))
		return st
	}
	made := stat()
	assert.Equal(t, unix.Mkdev(1195, 128), made.Rdev)
	assert.EqualValues(t, unix.S_IFCHR|0o660, made.Mode)
	assert.EqualValues(t, 992, made.Gid)
	_, err = n.Make()
	require.NoError(t, err)
	assert.Equal(t, made.Ctim, stat().Ctim, "one that is right stays")
	n.Major, n.GID = 1196, 44
	_, err = n.Make()
	require.NoError(t, err)
	assert.Equal(t, unix.Mkdev(1196, 128), stat().Rdev)
	assert.EqualValues(t, 44, stat().Gid)
}

func TestBootID(t *testing.T) {
	root := t.TempDir()
	var ids [8]string
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() {
			var err error
			ids[i], err = BootID(root)
			assert.NoError(t, err)
		})
	}
	wait.Wait()
	id := ids[0]
	assert.Equal(t, [8]string{id, id, id, id, id, id, id, id}, ids, "the first one to ask makes it")
	assert.Regexp(t, "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", id)
	same, err := BootID(root)
	require.NoError(t, err)
	assert.Equal(t, id, same)
	require.NoError(t, SetBootID(root, NewBootID()))
	other, err := BootID(root)
	require.NoError(t, err)
	assert.NotEqual(t, id, other)
}
