package hardware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// grace is how long a task that has seen the end of its context may take to
// say so, or to undo something quick, before it is left behind.
const grace = 50 * time.Millisecond

// hangs is how long a call of a task that was left behind may take before it
// counts as one that hangs. The slowest call of a driver that works, the removal
// of a partition, takes about a second.
const hangs = 3 * time.Second

// Gate lets one task at a time at a GPU. Calls into a kernel driver can hang
// and cannot be cancelled: a task whose caller has given up keeps the gate until
// its call returns, and calls that come meanwhile fail with an error about that call. Every
// GPU has its own gate, so one that hangs holds up no other.
type Gate struct {
	subject, noun string
	busy          chan struct{}

	// mu protects what follows.
	mu    sync.Mutex
	call  string
	since time.Time
	// left is true while a task runs whose caller has given up.
	left bool
	// closed says why nobody is let in, empty when the gate is open.
	closed string
}

// NewGate makes a gate. The subject is what is behind it, for errors
// ("GPU 0000:c1:00.0"); the noun goes before the names of calls ("NVML call")
// and may be empty.
func NewGate(subject, noun string) *Gate {
	if noun != "" {
		noun += " "
	}
	return &Gate{subject: subject, noun: noun, busy: make(chan struct{}, 1)}
}

// Task is one holder of a gate. All calls into the driver are made through it,
// with Ask.
type Task struct {
	ctx  context.Context
	gate *Gate
}

// Through runs f alone at the gate and returns when f does or ctx ends,
// whichever is first. f sees ctx between its calls, so that a task that was
// left behind stops at its next step and undoes what it must.
func Through[T any](ctx context.Context, g *Gate, f func(*Task) (T, error)) (T, error) {
	var none T
	if err := g.enter(ctx); err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		defer g.leave()
		value, err := f(&Task{ctx: ctx, gate: g})
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.value, o.err
	case <-time.After(grace):
		g.abandon()
		return none, g.stuck(ctx.Err())
	}
}

// Ask makes one call into the driver, unless the task's time is up.
func Ask[T any](t *Task, call string, f func() (T, error)) (T, error) {
	if err := t.ctx.Err(); err != nil {
		var none T
		return none, fmt.Errorf("%s: before %s%s: %w", t.gate.subject, t.gate.noun, call, err)
	}
	t.Note(call)
	return f()
}

// enter waits for the gate. When the task before was left behind by its own
// caller, in a call that hangs, there is no telling when it ends, so there is no
// waiting for it.
func (g *Gate) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", g.subject, err)
	}
	if err := g.refusal(); err != nil {
		return err
	}
	select {
	case g.busy <- struct{}{}:
		g.opened()
		return nil
	default:
	}
	for {
		after, left := g.hopeless()
		if left && after <= 0 {
			return g.stuck(nil)
		}
		look := time.NewTimer(max(after, grace))
		select {
		case g.busy <- struct{}{}:
			look.Stop()
			g.opened()
			return nil
		case <-ctx.Done():
			look.Stop()
			return g.stuck(ctx.Err())
		case <-look.C:
		}
		if err := g.refusal(); err != nil {
			return err
		}
	}
}

// Close enters the gate and lets nobody in until reopen is called: a call that comes, or
// waits, fails at once with the reason. It is for what takes long and concerns several gates.
// The task's calls end with ctx, but the gate stays closed.
func (g *Gate) Close(ctx context.Context, why string) (task *Task, reopen func(), err error) {
	if err := g.enter(ctx); err != nil {
		return nil, nil, err
	}
	g.setClosed(why)
	return &Task{ctx: ctx, gate: g}, sync.OnceFunc(func() {
		g.setClosed("")
		g.leave()
	}), nil
}

func (g *Gate) setClosed(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = why
}

// refusal is why nobody is let in, nil while the gate is open.
func (g *Gate) refusal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == "" {
		return nil
	}
	return &ClosedError{Subject: g.subject, Why: g.closed}
}

// Settle waits until no task is behind the gate, one that was left behind
// included.
func (g *Gate) Settle(ctx context.Context) error {
	select {
	case g.busy <- struct{}{}:
		g.leave()
		return nil
	case <-ctx.Done():
		return g.stuck(ctx.Err())
	}
}

func (g *Gate) opened() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.call, g.left = "", false
}

func (g *Gate) leave() { <-g.busy }

func (g *Gate) note(call string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.call, g.since = call, time.Now()
}

func (g *Gate) abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
}

// hopeless reports whether the task behind the gate was left behind, and after how
// much longer its call counts as one that hangs.
func (g *Gate) hopeless() (after time.Duration, left bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return hangs - time.Since(g.since), g.left
}

func (g *Gate) stuck(cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.call == "" {
		return errors.Join(errors.New(g.subject+" is busy"), cause)
	}
	return &StuckError{Subject: g.subject, Noun: g.noun, Call: g.call, Since: g.since, cause: cause}
}

// Context is the task's own: it ends when the caller gives up.
func (t *Task) Context() context.Context { return t.ctx }

// Subject is what is behind the gate.
func (t *Task) Subject() string { return t.gate.subject }

// Note says which call is being made, for a library that makes several of its
// own. Ask does it by itself.
func (t *Task) Note(call string) { t.gate.note(call) }

// Stuck is what a caller says that gives up while the task is in a call.
func (t *Task) Stuck(cause error) error { return t.gate.stuck(cause) }

// Undoing is the same task for what must be done although the caller has given
// up: taking back what would otherwise be left behind.
func (t *Task) Undoing() *Task {
	return &Task{ctx: context.WithoutCancel(t.ctx), gate: t.gate}
}

// StuckError is a call that has not come back. The GPU stays closed until it
// does, because such calls cannot be cancelled.
type StuckError struct {
	Subject string
	// Noun goes before the call's name, a space at its end, or is empty.
	Noun string
	Call string
	// Since is when the call was made.
	Since time.Time
	cause error
}

// Error is the same text for as long as the call hangs: what is shown of a GPU must
// not change with every look at it.
func (e *StuckError) Error() string {
	return fmt.Sprintf("%s%s on %s has not returned since %s", e.Noun, e.Call, e.Subject, e.Since.UTC().Format(time.RFC3339))
}

// Unwrap returns the end of the context that waited, if one did.
func (e *StuckError) Unwrap() error { return e.cause }

// ClosedError is a gate that lets nobody in for a while.
type ClosedError struct{ Subject, Why string }

func (e *ClosedError) Error() string { return e.Subject + ": " + e.Why }
