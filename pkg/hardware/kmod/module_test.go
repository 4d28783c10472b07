package kmod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/test/golden"
)

// host is a machine with modprobe.
type host struct {
	// mu protects all of it.
	mu sync.Mutex
	// state is amdgpu's, users the number of its users.
	state state
	users int
	// answers are what the next calls say, by "modprobe -r amdgpu"; none: they do it.
	answers map[string][]string
	// hang holds a call until it is closed.
	hang map[string]chan struct{}
	// takes is how long a call takes.
	takes map[string]time.Duration
	calls []string
}

func (h *host) Run(ctx context.Context, program string, args ...string) ([]byte, error) {
	call := program + " " + strings.Join(args, " ")
	h.mu.Lock()
	h.calls = append(h.calls, call)
	hang, takes := h.hang[call], h.takes[call]
	h.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if ctx.Err() != nil || sleep.For(ctx, takes) != nil {
		return nil, errors.New("signal: killed")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := h.answers[call]; len(left) > 0 {
		h.answers[call] = left[1:]
		if left[0] != "" {
			return []byte(left[0] + "\n"), errors.New("exit status 1")
		}
	}
	h.state = live
	if args[0] == "-r" || program == "rmmod" {
		h.state = absent
	}
	return nil, nil
}

func (h *host) ReadFile(name string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state == absent:
	case name == "/sys/module/amdgpu/initstate":
		return []byte(h.state + "\n"), nil
	case name == "/sys/module/amdgpu/refcnt":
		return fmt.Appendln(nil, h.users), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (h *host) set(s state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = s
}

func (h *host) is() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

func (h *host) said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

const (
	unloads = "modprobe -r amdgpu"
	loads   = "modprobe amdgpu"
)

func newHost(t *testing.T) (*host, *Module) {
	t.Helper()
	h := &host{state: live, answers: map[string][]string{}, hang: map[string]chan struct{}{}, takes: map[string]time.Duration{}}
	return h, &Module{Name: "amdgpu", Run: h.Run, ReadFile: h.ReadFile, Marker: filepath.Join(t.TempDir(), "amdgpu-out")}
}

func TestReload(t *testing.T) {
	h, m := newHost(t)
	h.hang[loads] = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- m.Reload(t.Context()) }()
	require.Eventually(t, func() bool { return len(h.said()) == 2 }, time.Minute, time.Millisecond)
	assert.FileExists(t, m.Marker, "while it is unloaded")
	close(h.hang[loads])
	require.NoError(t, <-done)
	assert.Equal(t, []string{unloads, loads}, h.said())
	assert.NoFileExists(t, m.Marker)
	require.NoError(t, m.Resume(t.Context()))
	assert.Len(t, h.said(), 2, "there is nothing to resume")
}

func TestReloadOfAModuleInUse(t *testing.T) {
	// The words do not matter, the number of users does.
	for words, users := range map[string]int{"modprobe: FATAL: Module amdgpu is in use.": 2, "modprobe: something new": 1} {
		h, m := newHost(t)
		h.users, h.answers[unloads] = users, []string{words}
		err := m.Reload(t.Context())
		require.ErrorIs(t, err, gpu.ErrInUse)
		assert.EqualError(t, err, "kernel module amdgpu is in use ("+words+")")
		assert.Equal(t, []string{unloads}, h.said(), "it is left alone")
		assert.NoFileExists(t, m.Marker)
	}
	h, m := newHost(t)
	h.answers[unloads] = []string{"modprobe: FATAL: Module amdgpu is in use."}
	err := m.Reload(t.Context())
	require.ErrorContains(t, err, "is in use")
	assert.NotErrorIs(t, err, gpu.ErrInUse, "nobody uses it")
}

// What can go wrong with modprobe, and that a driver is loaded at the end.
func TestReloadWithFailures(t *testing.T) {
	refused := "modprobe: ERROR: could not insert 'amdgpu': No such device"
	for name, test := range map[string]struct {
		answers map[string][]string
		want    []string
		calls   []string
	}{
		"the unload fails, the module stays": {
			map[string][]string{unloads: {"modprobe: FATAL: Module amdgpu is builtin."}},
			[]string{`unload kernel module amdgpu: "modprobe -r amdgpu": exit status 1: modprobe: FATAL: Module amdgpu is builtin.`}, []string{unloads},
		},
		"the load fails once":  {map[string][]string{loads: {refused}}, nil, []string{unloads, loads, loads}},
		"the load fails twice": {map[string][]string{loads: {refused, refused}}, nil, []string{unloads, loads, loads, loads}},
		"the load fails always": {
			map[string][]string{loads: {refused, refused, refused}},
			[]string{"kernel module amdgpu was unloaded and could not be loaded again in 3 tries", "No such device", "dmesg"}, []string{unloads, loads, loads, loads},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, m := newHost(t)
				h.answers = test.answers
				err := m.Reload(t.Context())
				assert.Equal(t, test.want == nil, err == nil, "%v", err)
				for _, want := range test.want {
					assert.ErrorContains(t, err, want)
				}
				assert.Equal(t, test.calls, h.said())
				if h.is() == live {
					assert.NoFileExists(t, m.Marker)
					return
				}
				assert.FileExists(t, m.Marker)
				require.NoError(t, m.Resume(t.Context()), "a later try loads it")
				assert.Equal(t, live, h.is())
				assert.NoFileExists(t, m.Marker)
			})
		})
	}
}

// A load that reports success must have loaded something.
func TestLoadThatLoadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		run := m.Run
		m.Run = func(ctx context.Context, program string, args ...string) ([]byte, error) {
			out, err := run(ctx, program, args...)
			h.set(absent)
			return out, err
		}
		assert.ErrorContains(t, m.Reload(t.Context()), "modprobe amdgpu reported success, but the module is not loaded")
	})
}

// modprobe may fail after it has unloaded the module: the module is loaded again, at once.
func TestUnloadThatFailsAndUnloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		run := m.Run
		m.Run = func(ctx context.Context, program string, args ...string) ([]byte, error) {
			out, err := run(ctx, program, args...)
			if args[0] == "-r" {
				err = errors.New("exit status 1")
			}
			return out, err
		}
		start := time.Now()
		require.EqualError(t, m.Reload(t.Context()), `unload kernel module amdgpu: "modprobe -r amdgpu": exit status 1`)
		assert.Equal(t, live, h.is())
		assert.NoFileExists(t, m.Marker)
		assert.Equal(t, start, time.Now())
	})
}

// If the kernel does not say whether the module is loaded, it is loaded, and counts as unloaded.
func TestStateThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		h.answers[unloads] = []string{"modprobe: FATAL: Module amdgpu is in use."}
		m.ReadFile = func(name string) ([]byte, error) { return nil, &fs.PathError{Op: "read", Path: name, Err: unix.EIO} }
		err := m.Reload(t.Context())
		require.ErrorContains(t, err, "read whether kernel module amdgpu is loaded: read /sys/module/amdgpu/initstate: input/output error")
		assert.NotErrorIs(t, err, gpu.ErrInUse)
		assert.Equal(t, []string{unloads, loads, loads, loads}, h.said())
		assert.FileExists(t, m.Marker)
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		h.takes[unloads] = time.Hour
		start := time.Now()
		err := m.Reload(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, `"modprobe -r amdgpu" was ended because it took too long`)
		assert.Equal(t, 100*time.Second, time.Since(start))
		assert.Equal(t, live, h.is())
		assert.NoFileExists(t, m.Marker)

		h.takes = map[string]time.Duration{unloads: time.Minute, loads: 4 * time.Minute}
		start = time.Now()
		require.NoError(t, m.Reload(t.Context()))
		assert.Equal(t, 5*time.Minute, time.Since(start), "slow is not too slow")

		h.takes[loads] = time.Hour
		start = time.Now()
		require.ErrorIs(t, m.Reload(t.Context()), context.DeadlineExceeded)
		assert.Equal(t, time.Minute+3*5*time.Minute+2*5*time.Second, time.Since(start))
	})
}

// The caller's time ends while the module is unloaded: it is loaded all the same.
func TestCallerGivesUpWhileItIsUnloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		h.takes[loads] = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, m.Reload(ctx))
		assert.Equal(t, live, h.is())

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		before := len(h.said())
		require.ErrorIs(t, m.Reload(gone), context.Canceled)
		assert.Equal(t, live, h.is())
		assert.Len(t, h.said(), before, "nothing is begun")
	})
}

// In the kernel no signal reaches modprobe. A module that is unloaded late is loaded again.
func TestUnloadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		h.hang[unloads] = make(chan struct{})
		start := time.Now()
		err := m.Reload(t.Context())
		require.ErrorContains(t, err, `unload kernel module amdgpu: "modprobe -r amdgpu" hangs in the kernel and cannot be ended`)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 102*time.Second, time.Since(start))
		assert.FileExists(t, m.Marker)

		close(h.hang[unloads])
		synctest.Wait()
		assert.Equal(t, live, h.is())
		assert.NoFileExists(t, m.Marker)
	})
}

func TestModuleBetweenLoadedAndUnloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		h.hang[unloads] = make(chan struct{})
		h.state = "going"
		start := time.Now()
		err := m.Reload(t.Context())
		assert.Equal(t, 102*time.Second+5*time.Minute, time.Since(start), "it may still be loaded or unloaded")
		assert.ErrorContains(t, err, `the kernel reports state "going" for kernel module amdgpu, neither loaded nor unloaded: reboot the node`)
		assert.Equal(t, []string{unloads}, h.said())
		assert.FileExists(t, m.Marker)
		close(h.hang[unloads])
		synctest.Wait()
		assert.Equal(t, live, h.is())
	})
}

func TestNothingIsDoneWhenNobodySaysWhoLoads(t *testing.T) {
	h, m := newHost(t)
	m.Manager = &manager{host: h, err: errors.New("forbidden")}
	assert.EqualError(t, m.Reload(t.Context()), "nothing was done to amdgpu: forbidden")
	assert.Empty(t, h.said())

	m.Manager, m.Marker = nil, filepath.Join(t.TempDir(), "no", "such", "folder")
	assert.ErrorContains(t, m.Reload(t.Context()), "nothing was done to amdgpu: lock kernel module amdgpu")
	assert.Empty(t, h.said())
	require.NoError(t, m.Resume(t.Context()))
	m.Marker = t.TempDir()
	assert.ErrorContains(t, m.Reload(t.Context()), "record that kernel module amdgpu is unloaded")
	assert.Empty(t, h.said())
	assert.ErrorContains(t, m.Resume(t.Context()), "read whether kernel module amdgpu was left unloaded")
}

// A marker that was cut short by a crash of the machine also has the module loaded.
func FuzzResume(f *testing.F) {
	f.Add([]byte(`{"version":1,"minReader":1,"managed":true}`))
	f.Add([]byte(`{"version":1,"minReader":1,"managed":false}`))
	f.Add([]byte(""))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &host{}
		m := &Module{Name: "amdgpu", Run: h.Run, ReadFile: h.ReadFile, Marker: filepath.Join(dir, fmt.Sprintf("%x", len(data))), Manager: &manager{host: h}, LookPause: time.Microsecond}
		require.NoError(t, os.WriteFile(m.Marker, data, 0o600))
		err := m.Resume(t.Context())
		if errors.As(err, new(*durable.NewerError)) {
			assert.FileExists(t, m.Marker)
			return
		}
		require.NoError(t, err)
		assert.Equal(t, live, h.is())
		assert.NoFileExists(t, m.Marker)
	})
}

// Every key of the marker, as it stays. One that needs a newer version is left alone.
func TestMarkerFormat(t *testing.T) {
	_, m := newHost(t)
	require.NoError(t, m.mark(true))
	data, err := os.ReadFile(m.Marker)
	require.NoError(t, err)
	golden.JSON(t, "testdata/marker.json", data)
	require.NoError(t, os.WriteFile(m.Marker, []byte(`{"version":2}`), 0o600))
	require.ErrorContains(t, m.Resume(t.Context()), "read whether kernel module amdgpu was left unloaded: it has version 2")
	assert.FileExists(t, m.Marker)
}

// During a rolling update the plugin that starts finds the marker of the one that is
// in the midst of a Reload: it leaves it alone.
func TestTwoProcesses(t *testing.T) {
	h, m := newHost(t)
	other := *m
	h.hang[unloads] = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- m.Reload(t.Context()) }()
	require.Eventually(t, func() bool { return len(h.said()) == 1 }, time.Minute, time.Millisecond)
	held := "kernel module amdgpu is being reloaded by another process, which holds " + m.Marker + ".lock"
	require.EqualError(t, other.Resume(t.Context()), held)
	require.EqualError(t, other.Reload(t.Context()), "nothing was done to amdgpu: "+held)
	assert.FileExists(t, m.Marker)
	close(h.hang[unloads])
	require.NoError(t, <-done)
	assert.Equal(t, []string{unloads, loads}, h.said())
	require.NoError(t, other.Resume(t.Context()))
	require.NoError(t, other.Reload(t.Context()))
}
