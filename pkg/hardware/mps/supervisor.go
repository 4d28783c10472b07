package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Config says where daemons live and what runs them.
type Config struct {
	// Dir is the folder of the daemons' folders, by the same path here and on the
	// host. Containers mount what is in it.
	Dir string
	// HostRoot is where this process sees the host's root folder ("/host"). Empty or
	// "/": this process is on the host itself.
	HostRoot string
	// DriverRoot is the folder of NVIDIA's driver, by the host's name
	// ("/run/nvidia/driver"). Empty: "/".
	DriverRoot string
	// ShmSize limits what the clients of one daemon can have in /dev/shm together, in
	// bytes; zero: DefaultShmSize. It holds for daemons that are launched from now on.
	ShmSize int64
	// Launcher is the command that calls Launch with the arguments that follow it.
	// Empty: this program with LaunchCommand.
	Launcher []string
	// Stand is how long a daemon may take until it answers; zero: 30 s.
	Stand time.Duration
	// Grace is how long a daemon may take to end when it is told to; zero: 5 s.
	Grace time.Duration
	// Logger hears of what is odd but no failure. The zero value is silent.
	Logger logr.Logger
}

// Supervisor starts and ends daemons. Any number of supervisors, in any number of
// processes, may work on one folder. It is safe for concurrent use.
type Supervisor struct {
	cfg Config

	// mu protects what follows.
	mu sync.Mutex
	// settling are the daemons that this process brings to readiness.
	settling map[string]*settling
	// options are the daemons', once Probe has found out what this driver's know.
	options []string
}

// settling is one daemon's way to readiness.
type settling struct {
	done   chan struct{}
	cancel context.CancelFunc
	// err is why it failed, to be read when done is closed.
	err error
}

// New makes a supervisor. It touches nothing.
func New(cfg Config) *Supervisor {
	cfg.DriverRoot = cmp.Or(cfg.DriverRoot, "/")
	cfg.HostRoot = cmp.Or(cfg.HostRoot, "/")
	cfg.ShmSize = cmp.Or(cfg.ShmSize, DefaultShmSize)
	cfg.Stand = cmp.Or(cfg.Stand, 30*time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, 5*time.Second)
	return &Supervisor{cfg: cfg, settling: map[string]*settling{}}
}

// PipeDir is where a daemon's clients find it, here and on the host. A container
// gets it mounted, and CUDA_MPS_PIPE_DIRECTORY names the place.
func (s *Supervisor) PipeDir(id string) string { return s.folder(id).pipe() }

// ShmDir is what a daemon's clients must have as /dev/shm, by its path on the host: a
// tmpfs that is mounted there as long as the daemon is not stopped. This process may see
// an empty folder.
func (s *Supervisor) ShmDir(id string) string { return s.folder(id).shm() }

// List names the daemons that have been started and not stopped, whether they run
// or not.
func (s *Supervisor) List() ([]string, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

func (s *Supervisor) folder(id string) folder { return folder(filepath.Join(s.cfg.Dir, id)) }
