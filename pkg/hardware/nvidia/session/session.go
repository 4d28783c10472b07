package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Session is this process's use of NVML. While a GPU is reset there must be none: an
// open session keeps every GPU in use that it was ever asked about, and NVML cannot
// release a single one (NVIDIA's mig-parted ends its session too).
type Session struct {
	nvml   nvml.Interface
	logger logr.Logger
	// library is the gate of calls that concern no GPU.
	library *hardware.Gate

	// alone is the gate of the task that has NVML to itself.
	alone *hardware.Gate
	// resets lets one GPU at a time be reset.
	resets *semaphore.Weighted
	// tasks are in NVML. sets are sets of events, which must be freed before NVML is
	// closed. To close NVML, take all of both, sets first: the owner of a set takes a
	// task from time to time.
	tasks, sets *semaphore.Weighted
	// leaving asks the owners of sets to free them.
	leaving atomic.Bool
	// released is set when NVML was closed for good.
	released atomic.Bool

	// initMu protects begun, which counts the calls of Init that need a Shutdown.
	initMu sync.Mutex
	begun  int
	// opened counts the times that NVML was opened.
	opened atomic.Int64

	// mu protects what follows.
	mu    sync.Mutex
	gates map[string]*hardware.Gate
	// seen are the PCI addresses by NVML's index, to name a GPU that is lost.
	seen map[int]string
}

// everyone is more than there ever are tasks or sets at once.
const everyone = 1 << 30

// Timeouts for closing NVML.
const (
	// quietPatience is how long other tasks may take to end. A call that hangs keeps
	// NVML in use.
	quietPatience = 15 * time.Second
	// ClosePatience is how long NVML may take to close, or to open again.
	ClosePatience = 10 * time.Second
)

// New makes a session, which Open opens.
func New(library nvml.Interface, logger logr.Logger) *Session {
	return &Session{
		nvml:    library,
		logger:  logger,
		library: NewGate("NVML"),
		alone:   NewGate("NVML"),
		resets:  semaphore.NewWeighted(1),
		tasks:   semaphore.NewWeighted(everyone),
		sets:    semaphore.NewWeighted(everyone),
		gates:   map[string]*hardware.Gate{},
		seen:    map[int]string{},
	}
}

// ErrLeaving means that a set of events must be freed, because a GPU is reset.
var ErrLeaving = errors.New("a GPU is reset")

// ErrReleased is the error of every call after Release.
var ErrReleased = errors.New("NVML was released")

// Open opens NVML.
func (s *Session) Open(ctx context.Context) error {
	_, err := OnLibrary(ctx, s, func(t *Task) (struct{}, error) { return struct{}{}, s.begin(t) })
	if err != nil {
		return fmt.Errorf("open NVML: %w", err)
	}
	return nil
}

// Close closes NVML. It does not wait for calls that hang.
func (s *Session) Close(ctx context.Context) error {
	_, err := OnLibrary(ctx, s, func(t *Task) (struct{}, error) { return struct{}{}, s.end(t) })
	if err != nil && !errors.Is(err, nvml.ERROR_UNINITIALIZED) && !errors.Is(err, ErrReleased) {
		return fmt.Errorf("close NVML: %w", err)
	}
	return nil
}

// HoldSet waits until sets of events are allowed, and keeps the session open until
// release. The owner of a set checks Leaving, and frees the set soon when it is true.
func (s *Session) HoldSet(ctx context.Context) (release func(), err error) {
	if s.released.Load() {
		return nil, ErrReleased
	}
	if err := s.sets.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	if s.released.Load() {
		s.sets.Release(1)
		return nil, ErrReleased
	}
	return func() { s.sets.Release(1) }, nil
}

// Leaving reports whether sets of events must be freed.
func (s *Session) Leaving() bool { return s.leaving.Load() }

// enter waits until NVML may be used, and keeps it open until leave.
func (s *Session) enter(ctx context.Context, t *hardware.Task) (leave func(), err error) {
	if s.released.Load() {
		return nil, fmt.Errorf("%s: %w", t.Subject(), ErrReleased)
	}
	if !s.tasks.TryAcquire(1) {
		t.Note("after the reset of a GPU")
		if err := s.tasks.Acquire(ctx, 1); err != nil {
			return nil, fmt.Errorf("%s: waiting for NVML, which is closed while a GPU is reset: %w", t.Subject(), err)
		}
	}
	if s.released.Load() { // meanwhile
		s.tasks.Release(1)
		return nil, fmt.Errorf("%s: %w", t.Subject(), ErrReleased)
	}
	return func() { s.tasks.Release(1) }, nil
}

// begin is NVML's Init.
func (s *Session) begin(t *Task) error {
	s.initMu.Lock()
	defer s.initMu.Unlock()
	err := Tell(t, "Init", t.NVML.Init)
	if errors.Is(err, nvml.ERROR_ALREADY_INITIALIZED) {
		return nil
	}
	if err == nil {
		s.begun++
		s.opened.Add(1)
	}
	return err
}

// Opened counts the times that NVML was opened. What NVML gave out belongs to one of them.
func (s *Session) Opened() int64 { return s.opened.Load() }

// end calls Shutdown as often as Init was called.
func (s *Session) end(t *Task) error {
	s.initMu.Lock()
	defer s.initMu.Unlock()
	for ; s.begun > 0; s.begun-- {
		if err := Tell(t, "Shutdown", t.NVML.Shutdown); err != nil {
			return err
		}
	}
	return nil
}

// keepOut waits until nobody is in NVML, and keeps everybody out until letIn. The caller
// holds resets.
func (s *Session) keepOut(ctx context.Context) (letIn func(), err error) {
	s.leaving.Store(true)
	letIn = func() { s.leaving.Store(false) }
	for _, used := range []*semaphore.Weighted{s.sets, s.tasks} {
		if err := used.Acquire(ctx, everyone); err != nil {
			letIn()
			return nil, fmt.Errorf("NVML calls of this plugin have not returned, and keep the GPUs in use: %w", err)
		}
		before := letIn
		letIn = func() { used.Release(everyone); before() }
	}
	if s.released.Load() {
		letIn()
		return nil, ErrReleased
	}
	return letIn, nil
}

// WithoutNVML runs f while this process has NVML closed, and opens it again whatever f
// returns.
func (s *Session) WithoutNVML(ctx context.Context, f func(context.Context) error) error {
	if err := s.resets.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for the reset of another GPU: %w", err)
	}
	defer s.resets.Release(1)
	quiet, cancel := context.WithTimeout(ctx, quietPatience)
	defer cancel()
	letIn, err := s.keepOut(quiet)
	if err != nil {
		return err
	}
	defer letIn()
	// Deferred before NVML is closed: to open it does no harm if nothing was closed.
	defer func() {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), ClosePatience)
		defer cancel()
		if err := s.inPrivate(again, s.begin); err != nil {
			// The next task that needs NVML tries again.
			s.logger.Info("NVML does not open after the reset of a GPU", "reason", err.Error())
		}
	}()
	ending, cancelEnding := context.WithTimeout(ctx, ClosePatience)
	defer cancelEnding()
	if err := s.inPrivate(ending, s.end); err != nil {
		return fmt.Errorf("close NVML: %w", err)
	}
	return f(ctx)
}

// inPrivate runs f for the task that has NVML to itself.
func (s *Session) inPrivate(ctx context.Context, f func(*Task) error) error {
	_, err := hardware.Through(ctx, s.alone, func(t *hardware.Task) (struct{}, error) { return struct{}{}, f(s.task(t)) })
	return err
}

// Release closes NVML for good, so that the kernel module can be unloaded. It waits for the
// calls in progress, and for the owners of sets of events, which the caller has told to end. If
// a call hangs it fails and NVML stays open. Afterwards every call fails with ErrReleased;
// another Session uses what is installed next.
func (s *Session) Release(ctx context.Context) error {
	if err := s.resets.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for the reset of a GPU: %w", err)
	}
	defer s.resets.Release(1)
	letIn, err := s.keepOut(ctx)
	if err != nil {
		return err
	}
	defer letIn() // who has waited goes on, or is told
	if err := s.inPrivate(ctx, s.end); err != nil {
		return fmt.Errorf("close NVML: %w", err)
	}
	s.released.Store(true)
	return nil
}
