package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Store reads and changes one state in a file. It is safe for concurrent use, by
// goroutines and by processes.
type Store[T any] struct {
	// Path is the file, Lock the one beside it that processes take turns with.
	Path, Lock string
	// Check refuses a state that this program cannot read.
	Check func(*T) error
	// Clone makes a copy that can be changed.
	Clone func(*T) *T

	// mu protects what was last read, which is shared and never changed.
	mu     sync.Mutex
	cached *T
	id     FileID
}

// Existed says whether the store has been written to before, by whomever.
func (s *Store[T]) Existed() bool {
	_, err := os.Stat(s.Lock)
	return err == nil
}

// Read returns the newest state, nil when there is none. The result is shared:
// callers must not change it.
func (s *Store[T]) Read() (*T, error) {
	st, _, err := s.ReadID()
	return st, err
}

// ReadID also says which version of the file it is.
func (s *Store[T]) ReadID() (*T, FileID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := Identify(s.Path)
	if err != nil {
		return nil, id, fmt.Errorf("simulated state: %w", err)
	}
	if s.cached != nil && id == s.id {
		return s.cached, id, nil
	}
	st, err := s.decode()
	if err != nil {
		return nil, id, err
	}
	s.cached, s.id = st, id
	return st, id, nil
}

func (s *Store[T]) decode() (*T, error) {
	data, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("simulated state: %w", err)
	}
	st := new(T)
	if err := json.Unmarshal(data, st); err != nil {
		return nil, fmt.Errorf("simulated state %s: %w; remove the file to start afresh, which loses the simulated partitions", s.Path, err)
	}
	if err := s.Check(st); err != nil {
		return nil, fmt.Errorf("simulated state %s: %w; remove the file to start afresh", s.Path, err)
	}
	return st, nil
}

// Update changes the state under the machine-wide lock: change gets the newest
// state (nil when there is none) and returns what to write, or nil to leave the
// file alone.
func (s *Store[T]) Update(change func(*T) (*T, error)) error {
	lock := flock.New(s.Lock)
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("simulated state: %w", err)
	}
	defer lock.Close()
	current, err := s.Read()
	if err != nil {
		return err
	}
	if current != nil {
		current = s.Clone(current)
	}
	next, err := change(current)
	if err != nil || next == nil {
		return err
	}
	data, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return err
	}
	if err := ReplaceFile(s.Path, append(data, '\n')); err != nil {
		return fmt.Errorf("simulated state: %w", err)
	}
	return s.remember(next)
}

// remember spares the next reader in this process the decoding.
func (s *Store[T]) remember(st *T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := Identify(s.Path)
	if err != nil {
		return err
	}
	s.cached, s.id = st, id
	return nil
}

// FileID tells one version of an atomically replaced file from another.
type FileID struct {
	Inode    uint64 `json:"inode,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Modified int64  `json:"modified,omitempty"`
}

// Identify looks at a file; one that is not there has the zero FileID.
func Identify(path string) (FileID, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return FileID{}, nil
	}
	if err != nil {
		return FileID{}, err
	}
	id := FileID{Size: info.Size(), Modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.Inode = st.Ino
	}
	return id, nil
}

// ReplaceFile replaces a file atomically and makes sure that Identify tells the
// new one from the old: inodes are used again, and a file system's clock may not
// have moved since the last change.
func ReplaceFile(path string, data []byte) error {
	old, err := Identify(path)
	if err != nil {
		return err
	}
	// Without fsync, unlike renameio: a simulated machine need not outlive the real one.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	modified := time.Unix(0, max(time.Now().UnixNano(), old.Modified+1))
	if err := os.Chtimes(f.Name(), modified, modified); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
