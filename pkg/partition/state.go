package partition

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// State is which profile is applied to the GPUs of a node. It is kept in a file, the journal. It is
// safe for concurrent use.
type State struct {
	// File is the path of the journal: <data>/profile.json.
	File string

	// decided is set once the controller has finished, or has given up, the first switch.
	decided atomic.Bool

	// write orders the writes of the file. It is taken before mu.
	write sync.Mutex
	// mu protects now, the content of the file, and version, the version of the file that
	// was read.
	mu      sync.RWMutex
	now     journal
	version fileVersion
}

// OpenState reads the journal. After an error, which should be reported, the State can be used,
// and no profile counts as applied.
func OpenState(file string) (*State, error) {
	s := &State{File: file}
	version, _ := versionOf(file)
	now, err := readJournal(file)
	if !errors.As(err, new(*unreadError)) { // otherwise it is read later
		s.now, s.version = now, version
	}
	return s, err
}

// Unread returns why the file cannot be read now, or that it needs a newer version. Then what is
// applied may be unknown, so nothing is changed by what is not in it.
func (s *State) Unread() error {
	s.write.Lock()
	defer s.write.Unlock()
	_, err := s.refresh()
	return err
}

// Applied returns the applied profile; its hash is empty if none is applied. While
// another one is being applied, it is still the previous one.
func (s *State) Applied() v1beta1.ProfileSnapshot { return s.journal().Applied.Snapshot }

// Layout returns the current layout of a GPU, which says what is published of it.
func (s *State) Layout(pciAddress string) profile.Layout { return s.journal().Layouts[pciAddress] }

// Behind reports whether the applied profile is not applied on a GPU yet, because it did
// not answer when the others were changed.
func (s *State) Behind(pciAddress string) bool {
	in := s.journal()
	want, known := in.Applied.Layouts[pciAddress]
	return known && in.Applying == nil && !reflect.DeepEqual(want, in.Layouts[pciAddress])
}

// Static reports whether the partition at a placement is static.
func (s *State) Static(p gpu.Placement) bool {
	in := s.journal()
	return in.static(p.Base())
}

// AppliedLayouts returns the applied profile and the current layouts of the GPUs, by PCI
// address. The map must not be changed.
func (s *State) AppliedLayouts() (v1beta1.ProfileSnapshot, map[string]profile.Layout) {
	in := s.journal()
	return in.Applied.Snapshot, in.Layouts
}

// SetDecided records that the controller has finished, or has given up, the first switch.
func (s *State) SetDecided() { s.decided.Store(true) }

// Undecided reports whether the controller has not finished the first switch yet.
func (s *State) Undecided() bool { return s.Applied().Hash == "" && !s.decided.Load() }

// journal returns the content of the file. Its maps must not be changed. During a rolling
// update, another plugin may write the file.
func (s *State) journal() journal {
	version, err := versionOf(s.File)
	s.mu.RLock()
	now, current := s.now, version == s.version
	s.mu.RUnlock()
	if current || err != nil {
		return now
	}
	s.write.Lock()
	defer s.write.Unlock()
	now, _ = s.refresh() // what is known stays until the file can be read
	return now
}

// refresh reads the file if another process has written it, or if it could not be read before. It fails
// if the file cannot be read, or needs a newer version. If the file is broken, the known content stays.
// The caller holds write.
func (s *State) refresh() (journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, err := versionOf(s.File)
	if err == nil && version == s.version {
		return s.now, nil
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(s.File)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return s.now, nil
	case err != nil:
		return s.now, &unreadError{err}
	}
	in, err := decodeJournal(data)
	if errors.As(err, new(*unreadError)) {
		return s.now, err
	}
	s.version = version
	if err == nil {
		s.now = in
	}
	return s.now, nil
}

func (s *State) update(change func(journal) journal) error {
	s.write.Lock()
	defer s.write.Unlock()
	now, err := s.refresh()
	if err != nil {
		return err
	}
	next := change(now)
	if err := writeJournal(s.File, next); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = next
	s.version, _ = versionOf(s.File)
	return nil
}

// fileVersion identifies a version of the file. Each write creates a new file.
type fileVersion struct {
	inode        uint64
	size         int64
	sec, nanosec int64
}

// versionOf returns the current version of a file, zero if it does not exist.
func versionOf(file string) (fileVersion, error) {
	var s unix.Stat_t
	if err := unix.Stat(file, &s); err != nil {
		return fileVersion{}, err
	}
	return fileVersion{s.Ino, s.Size, s.Mtim.Sec, s.Mtim.Nsec}, nil
}

// static reports whether a partition at the placement is static.
func (in *journal) static(p gpu.Placement) bool {
	is := func(q gpu.Placement) bool { return q.Name() == p.Name() }
	return slices.ContainsFunc(in.Layouts[p.GPU].Static, is) || slices.ContainsFunc(in.Ours[p.GPU], is)
}
