package mps

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
)

// Spec is what a daemon is for. It is kept as spec.json.
type Spec struct {
	// ID names the daemon and its folder: the UID of a claim or the name of a GPU.
	ID string `json:"id"`
	// Devices are the GPUs that the daemon serves; their order is that of CUDA's
	// ordinals in it and in its clients.
	Devices []Device `json:"devices"`
	// ThreadPercentage is how much of the processors one client can fill, from 1 to
	// 100; zero: no limit.
	ThreadPercentage int64 `json:"threadPercentage,omitempty"`
}

// Device is a GPU that a daemon serves.
type Device struct {
	UUID string `json:"uuid"`
	// MemoryLimit is what one client process can allocate, in bytes; zero: no limit.
	// The daemon counts in MiB: what is over a whole one does not count.
	MemoryLimit int64 `json:"memoryLimitBytes,omitempty"`
}

// Status is how a daemon is.
type Status struct {
	// Ready: it runs, answers and has its limits.
	Ready bool
	// Gone: there is no such daemon.
	Gone bool
	// Err is why it will not become ready by itself.
	Err error
}

const (
	mib = 1 << 20
	// maxSocketPath is how long the path of a Unix socket can be: sun_path of
	// unix(7) without its ending zero.
	maxSocketPath = 107
	// controlSocket is the longest name of a socket that is known in a pipe folder:
	// the daemon makes control, control_lock, control_privileged and log there.
	controlSocket = "control_privileged"
)

// idPattern keeps ids to what can be a folder's name and a control group's.
var idPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)

func checkID(dir, id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%q cannot name an MPS daemon: letters, digits, dots, dashes and underscores can, up to 63", id)
	}
	if path := filepath.Join(dir, id, "pipe", controlSocket); len(path) > maxSocketPath {
		return fmt.Errorf("MPS daemon %s: its socket %s would have a path of %d bytes, and Unix sockets can have %d: choose a shorter folder for MPS",
			id, path, len(path), maxSocketPath)
	}
	return nil
}

func (s Spec) check() error {
	for i, d := range s.Devices {
		switch {
		case d.UUID == "":
			return fmt.Errorf("MPS daemon %s: device %d has no UUID", s.ID, i)
		case d.MemoryLimit < 0 || d.MemoryLimit > 0 && d.MemoryLimit < mib:
			return fmt.Errorf("MPS daemon %s: the memory limit of device %s is %d bytes: it can be 1 MiB or more, or none", s.ID, d.UUID, d.MemoryLimit)
		}
	}
	if s.ThreadPercentage < 0 || s.ThreadPercentage > 100 {
		return fmt.Errorf("MPS daemon %s: a thread percentage of %d is not between 1 and 100", s.ID, s.ThreadPercentage)
	}
	return nil
}

// equal compares specs of one daemon.
func (s Spec) equal(t Spec) bool {
	return s.ThreadPercentage == t.ThreadPercentage && slices.Equal(s.Devices, t.Devices)
}

// ErrOtherSpec says that a daemon exists already, for something else.
var ErrOtherSpec = errors.New("an MPS daemon of this name runs with other settings")

// errNoDaemon says that there is nothing to work on.
var errNoDaemon = errors.New("there is no such MPS daemon")
