package nvidia

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sync/semaphore"

	"github.com/tranche-dev/tranche/pkg/hardware/gate"
)

// session is this process's hold on NVML. While a GPU is reset it must have none:
// an open session keeps the GPUs in use that it was ever asked about, and NVML
// knows no way to give up a single one (NVIDIA's mig-parted ends its session too).
type session struct {
	// gate is for who has the session to himself.
	gate *gate.Gate
	// resets lets one GPU at a time be reset.
	resets *semaphore.Weighted
	// tasks are in NVML, sets are sets of events, which must be freed before the
	// session ends. Who lets go of NVML takes all, sets first: who has a set takes a
	// task now and then.
	tasks, sets *semaphore.Weighted
	// leaving asks those who have a set of events to free it.
	leaving atomic.Bool
	// released is set when the driver has been given up for good.
	released atomic.Bool

	// mu protects begun, which counts the calls of Init that want their Shutdown.
	mu    sync.Mutex
	begun int
}

// everyone is more than there ever are tasks or sets at once.
const everyone = 1 << 30

// The times of letting go of NVML.
const (
	// quietPatience is how long other tasks may take to end. One that hangs keeps
	// NVML in use.
	quietPatience = 15 * time.Second
	// endPatience is how long NVML may take to close, or to open again.
	endPatience = 10 * time.Second
)

func newSession() *session {
	return &session{
		gate:   newGate("NVML"),
		resets: semaphore.NewWeighted(1),
		tasks:  semaphore.NewWeighted(everyone),
		sets:   semaphore.NewWeighted(everyone),
	}
}

// errLeaving ends the use of a set of events.
var errLeaving = errors.New("a GPU is reset")

// errReleased is what every call answers after Release.
var errReleased = errors.New("NVML was released")

// holdSet waits until there may be sets of events, and keeps the session until
// release. Who has it looks at leaving, and frees the set soon.
func (s *session) holdSet(ctx context.Context) (release func(), err error) {
	if s.released.Load() {
		return nil, errReleased
	}
	if err := s.sets.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { s.sets.Release(1) }, nil
}

// enter waits until NVML may be used, and keeps it open until leave.
func (s *session) enter(ctx context.Context, t *gate.Task) (leave func(), err error) {
	if s.released.Load() {
		return nil, fmt.Errorf("%s: %w", t.Subject(), errReleased)
	}
	if !s.tasks.TryAcquire(1) {
		t.Note("after the reset of a GPU")
		if err := s.tasks.Acquire(ctx, 1); err != nil {
			return nil, fmt.Errorf("%s: waiting for NVML, which is closed while a GPU is reset: %w", t.Subject(), err)
		}
	}
	return func() { s.tasks.Release(1) }, nil
}

// begin is NVML's Init.
func (s *session) begin(t *task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := tell(t, "Init", t.nvml.Init)
	if errors.Is(err, nvml.ERROR_ALREADY_INITIALIZED) {
		return nil
	}
	if err == nil {
		s.begun++
	}
	return err
}

// end is as many calls of Shutdown as there were of Init.
func (s *session) end(t *task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.begun > 0; s.begun-- {
		if err := tell(t, "Shutdown", t.nvml.Shutdown); err != nil {
			return err
		}
	}
	return nil
}

// keepOut waits until nobody is in NVML, and keeps everybody out until letIn. The caller
// holds resets.
func (s *session) keepOut(ctx context.Context) (letIn func(), err error) {
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
	return letIn, nil
}

// withoutNVML runs f while this process has no session of NVML, and opens it again
// whatever f says.
func (d *Driver) withoutNVML(ctx context.Context, f func(context.Context) error) error {
	s := d.session
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
	// The way back first: what it does is right although nothing was closed.
	defer func() {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		if err := d.alone(again, s.begin); err != nil {
			// Whoever needs NVML next tries again.
			d.cfg.Logger.Info("NVML does not open after the reset of a GPU", "reason", err.Error())
		}
	}()
	ending, cancelEnding := context.WithTimeout(ctx, endPatience)
	defer cancelEnding()
	if err := d.alone(ending, s.end); err != nil {
		return fmt.Errorf("close NVML: %w", err)
	}
	return f(ctx)
}

// alone runs f for who has the session to himself.
func (d *Driver) alone(ctx context.Context, f func(*task) error) error {
	_, err := gate.Through(ctx, d.session.gate, func(t *gate.Task) (struct{}, error) { return struct{}{}, f(d.task(t)) })
	return err
}
