package amdtest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// Optional returns the calls that an operation asks of the files and succeeds without: each of them
// fails in turn, with EIO. If the operation fails, it must be for that. "read <path>" is a call.
func Optional(t *testing.T, host func() *Tree, operation func(sysfs.Files) error) (calls []string) {
	t.Helper()
	clean := &faulty{Tree: host()}
	require.NoError(t, operation(clean))
	slices.Sort(clean.asked)
	for _, call := range slices.Compact(clean.asked) {
		err := operation(&faulty{Tree: host(), call: call})
		if err == nil {
			calls = append(calls, call)
			continue
		}
		assert.ErrorIs(t, err, unix.EIO, call)
	}
	return calls
}

// faulty is a host that notes what is asked of it, and fails one call.
type faulty struct {
	*Tree
	asked []string
	call  string
}

func (f *faulty) ask(call string) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.asked = append(f.asked, call)
	if call == f.call {
		return unix.EIO
	}
	return nil
}

// ReadFile implements sysfs.Files.
func (f *faulty) ReadFile(name string) ([]byte, error) {
	if err := f.ask("read " + name); err != nil {
		return nil, err
	}
	return f.Tree.ReadFile(name)
}

// ReadDir implements sysfs.Files.
func (f *faulty) ReadDir(name string) ([]string, error) {
	if err := f.ask("list " + name); err != nil {
		return nil, err
	}
	return f.Tree.ReadDir(name)
}

// Stat implements sysfs.Files.
func (f *faulty) Stat(name string) (sysfs.Info, error) {
	if err := f.ask("stat " + name); err != nil {
		return sysfs.Info{}, err
	}
	return f.Tree.Stat(name)
}
