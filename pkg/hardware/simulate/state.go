package simulate

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

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// stateVersion is raised when an older state cannot be read any more.
const stateVersion = 1

// state is what the driver and the cards remember between calls. It is kept
// in one file that every process of the machine reads.
type state struct {
	Version int `json:"version"`
	// DriverVersion and the cards' models and addresses tell whether the
	// state belongs to the inventory at hand.
	DriverVersion string `json:"driverVersion"`
	BootID        string `json:"bootID"`
	// Loaded is when the driver was loaded.
	Loaded time.Time `json:"loaded"`
	Majors majors    `json:"majors"`
	// Serial numbers instances, so that a handle of a destroyed instance is
	// told from its successor with the same ids.
	Serial    uint64     `json:"serial"`
	GPUs      []gpuState `json:"gpus"`
	Processes []Process  `json:"processes,omitempty"`
	// FaultsFile is which faults.yaml the counts belong to.
	FaultsFile  fileID `json:"faultsFile"`
	FaultCounts []int  `json:"faultCounts,omitempty"`
}

type gpuState struct {
	Model          string `json:"model"`
	PCI            string `json:"pci"`
	MIGMode        bool   `json:"migMode"`
	PendingMIGMode bool   `json:"pendingMigMode"`
	ComputeMode    int    `json:"computeMode,omitempty"`
	// Started is when the driver last brought the card up.
	Started   time.Time          `json:"started,omitzero"`
	Instances []gpuInstanceState `json:"instances,omitempty"`
}

type gpuInstanceState struct {
	ID      int    `json:"id"`
	Profile int    `json:"profile"` // Profile.ID
	Start   int    `json:"start"`
	Serial  uint64 `json:"serial"`

	Compute []computeInstanceState `json:"compute,omitempty"`
}

type computeInstanceState struct {
	ID      int    `json:"id"`
	Profile int    `json:"profile"` // NVML_COMPUTE_INSTANCE_PROFILE_*
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	Serial  uint64 `json:"serial"`
	// MIGIndex is the index of the MIG device on its card.
	MIGIndex int `json:"migIndex"`
}

// fileID tells one version of an atomically replaced file from another.
type fileID struct {
	Inode    uint64 `json:"inode,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Modified int64  `json:"modified,omitempty"`
}

func identify(path string) (fileID, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileID{}, nil
	}
	if err != nil {
		return fileID{}, err
	}
	id := fileID{Size: info.Size(), Modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.Inode = st.Ino
	}
	return id, nil
}

// store reads and changes the state file of one root.
type store struct {
	root string

	mu     sync.Mutex
	cached *state
	id     fileID
}

func (s *store) path() string     { return filepath.Join(s.root, "state.json") }
func (s *store) lockPath() string { return filepath.Join(s.root, "state.lock") }

// existed says whether the folder has been a simulated machine's before, so
// that what is in it may be removed.
func (s *store) existed() bool {
	_, err := os.Stat(s.lockPath())
	return err == nil
}

// read returns the newest state, nil before the first start. The result is
// shared: callers must not change it.
func (s *store) read() (*state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := identify(s.path())
	if err != nil {
		return nil, fmt.Errorf("simulated state: %w", err)
	}
	if s.cached != nil && id == s.id {
		return s.cached, nil
	}
	st, err := decodeState(s.path())
	if err != nil {
		return nil, err
	}
	s.cached, s.id = st, id
	return st, nil
}

func decodeState(path string) (*state, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("simulated state: %w", err)
	}
	st := &state{}
	if err := json.Unmarshal(data, st); err != nil {
		return nil, fmt.Errorf("simulated state %s: %w; remove the file to start afresh, which loses the simulated partitions", path, err)
	}
	if st.Version != stateVersion {
		return nil, fmt.Errorf("simulated state %s: version %d, this program reads %d; remove the file to start afresh", path, st.Version, stateVersion)
	}
	return st, nil
}

// update changes the state under the machine-wide lock: change gets the newest
// state (nil before the first start) and returns what to write, or nil to
// leave the file alone.
func (s *store) update(change func(*state) (*state, error)) error {
	unlock, err := lockFile(s.lockPath())
	if err != nil {
		return fmt.Errorf("simulated state: %w", err)
	}
	defer unlock()
	current, err := s.read()
	if err != nil {
		return err
	}
	next, err := change(current.clone())
	if err != nil || next == nil {
		return err
	}
	data, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return err
	}
	if err := replaceFile(s.path(), append(data, '\n')); err != nil {
		return fmt.Errorf("simulated state: %w", err)
	}
	return s.remember(next)
}

// remember spares the next reader in this process the decoding.
func (s *store) remember(st *state) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := identify(s.path())
	if err != nil {
		return err
	}
	s.cached, s.id = st, id
	return nil
}

// replaceFile replaces a file atomically and makes sure that identify tells
// the new one from the old: inodes are used again, and a file system's clock
// may not have moved since the last change.
func replaceFile(path string, data []byte) error {
	old, err := identify(path)
	if err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	modified := time.Unix(0, max(time.Now().UnixNano(), old.Modified+1))
	if err := os.Chtimes(f.Name(), modified, modified); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// clone makes a copy that can be changed.
func (st *state) clone() *state {
	if st == nil {
		return nil
	}
	c := *st
	c.GPUs = append([]gpuState(nil), st.GPUs...)
	for i := range c.GPUs {
		instances := append([]gpuInstanceState(nil), c.GPUs[i].Instances...)
		for j := range instances {
			instances[j].Compute = append([]computeInstanceState(nil), instances[j].Compute...)
		}
		c.GPUs[i].Instances = instances
	}
	c.Processes = append([]Process(nil), st.Processes...)
	c.FaultCounts = append([]int(nil), st.FaultCounts...)
	return &c
}

// nextSerial numbers a new instance.
func (st *state) nextSerial() uint64 {
	st.Serial++
	return st.Serial
}

// gpu finds a card by its address.
func (st *state) gpu(pci string) (*gpuState, bool) {
	for i := range st.GPUs {
		if st.GPUs[i].PCI == pci {
			return &st.GPUs[i], true
		}
	}
	return nil, false
}

// instance finds a GPU instance by its id.
func (g *gpuState) instance(id int) (*gpuInstanceState, bool) {
	for i := range g.Instances {
		if g.Instances[i].ID == id {
			return &g.Instances[i], true
		}
	}
	return nil, false
}

// compute finds a compute instance by its id.
func (i *gpuInstanceState) compute(id int) (*computeInstanceState, bool) {
	for j := range i.Compute {
		if i.Compute[j].ID == id {
			return &i.Compute[j], true
		}
	}
	return nil, false
}

// lockFile takes an exclusive lock that holds between processes as well as
// between goroutines: each call opens the file anew.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

func errNoState(root string) error {
	return fmt.Errorf("no simulated machine in %s: New creates it", root)
}
