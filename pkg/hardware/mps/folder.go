package mps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"

	"github.com/tranche-dev/tranche/pkg/durable"
)

// format is the format of the files in JSON: spec.json, pid, ready and cgroups. A daemon outlives the
// plugin, so a plugin finds files of other versions.
var format = durable.Format{Version: 1, MinReader: 1}

// folder is what is kept of one daemon.
type folder string

func (f folder) path(name string) string { return filepath.Join(string(f), name) }
func (f folder) id() string              { return filepath.Base(string(f)) }
func (f folder) pipe() string            { return f.path("pipe") }
func (f folder) shm() string             { return f.path("shm") }
func (f folder) log() string             { return f.path("log") }

// make makes the folder and those in it. Clients and servers of any user come to
// the latter, and may not take away what belongs to another.
func (f folder) make() error {
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return err
	}
	for _, dir := range []string{f.pipe(), f.log(), f.shm()} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) spec() (Spec, error) {
	var spec Spec
	err := f.read("spec.json", &spec)
	return spec, err
}

// process is the one that was launched last, the zero process if none was, and whether it still
// runs. It fails if that cannot be found out now: then the daemon may run.
func (f folder) process() (p process, alive bool, err error) {
	content, err := os.ReadFile(f.path("pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return process{}, false, nil
	}
	if err == nil {
		_, err = format.Decode(content, &p)
		if err != nil && !errors.As(err, new(*durable.NewerError)) {
			return process{}, false, nil //nolint:nilerr // it was never written whole
		}
	}
	if err == nil {
		alive, err = p.alive()
	}
	if err != nil {
		return p, false, fmt.Errorf("find out whether MPS daemon %s runs: %w", f.id(), err)
	}
	return p, alive, nil
}

// isReady reports whether a process has answered and has its limits.
func (f folder) isReady(p process) bool {
	var ready process
	return f.read("ready", &ready) == nil && ready == p
}

func (f folder) read(name string, value any) error {
	content, err := os.ReadFile(f.path(name))
	if err != nil {
		return err
	}
	if _, err := format.Decode(content, value); err != nil {
		return fmt.Errorf("%s: %w", f.path(name), err)
	}
	return nil
}

// write replaces a file atomically. The folder may be gone: it is not made again.
func (f folder) write(name string, value any) error {
	content, err := format.Encode(value, nil)
	if err != nil {
		return err
	}
	return renameio.WriteFile(f.path(name), append(content, '\n'), 0o644, renameio.WithTempDir(string(f)), renameio.WithStaticPermissions(0o644))
}

// lockPoll is how often a lock that another holds is tried again.
const lockPoll = 10 * time.Millisecond

// lock waits until nobody else launches or stops the daemon. The lock ends with
// unlock, with the process, and when the process becomes another program.
func (f folder) lock(ctx context.Context) (unlock func(), err error) {
	for {
		lock := flock.New(f.path("lock"))
		switch _, err := lock.TryLockContext(ctx, lockPoll); {
		case err == nil && f.isLock(lock):
			return func() { lock.Close() }, nil
		case err == nil:
			lock.Close()
		case ctx.Err() != nil:
			return nil, fmt.Errorf("MPS daemon %s is being launched or stopped by another process: %w", f.id(), context.Cause(ctx))
		default:
			return nil, fmt.Errorf("lock %s: %w", lock, err)
		}
	}
}

// isLock reports whether the lock is still the folder's: a process that waited for a
// lock whose file was removed meanwhile keeps nobody out.
func (f folder) isLock(lock *flock.Flock) bool {
	mine, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.path("lock"))
	return err == nil && os.SameFile(mine, there)
}

// tailSize is how much of a log is told in an error.
const tailSize = 1 << 10

// lastWords is what launcher, daemon and server wrote last.
func (f folder) lastWords() string {
	var words []string
	for _, name := range []string{"launch.log", "log/control.log", "log/server.log"} {
		if text := tail(f.path(name)); text != "" {
			words = append(words, name+": "+text)
		}
	}
	if len(words) == 0 {
		return "it wrote nothing"
	}
	return strings.Join(words, "; ")
}

func tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailSize {
		_, _ = file.Seek(-tailSize, io.SeekEnd)
	}
	content, _ := io.ReadAll(io.LimitReader(file, tailSize))
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(content), "?")), " ")
}
