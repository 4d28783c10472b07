package nvidia

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// grace is how long a task that has seen the end of its context may take to
// say so, or to undo something quick, before it is left behind.
const grace = 50 * time.Millisecond

// gate lets one task at a time at a card. NVML calls can hang and cannot be
// cancelled: a task whose caller has given up keeps the gate until its call
// returns, and whoever comes meanwhile is told about that call. Every card has
// its own gate, so one that hangs holds up no other.
type gate struct {
	// subject names the card for errors: "card 0000:c1:00.0".
	subject string
	busy    chan struct{}

	mu    sync.Mutex
	call  string
	since time.Time
	// left is true while a task runs whose caller has given up.
	left bool
}

func newGate(subject string) *gate {
	return &gate{subject: subject, busy: make(chan struct{}, 1)}
}

// task is one holder of a gate. All NVML calls are made through it.
type task struct {
	ctx  context.Context
	gate *gate
	nvml nvml.Interface
}

// through runs f alone at the gate and returns when f does or ctx ends,
// whichever is first. f sees ctx between its calls, so that a task that was
// left behind stops at its next step and undoes what it must.
func through[T any](ctx context.Context, g *gate, lib nvml.Interface, f func(*task) (T, error)) (T, error) {
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
		value, err := f(&task{ctx: ctx, gate: g, nvml: lib})
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

// enter waits for the gate. When the task before was left behind by its own
// caller there is no telling when it ends, so there is no waiting for it.
func (g *gate) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", g.subject, err)
	}
	select {
	case g.busy <- struct{}{}:
		g.opened()
		return nil
	default:
	}
	if g.isLeft() {
		return g.stuck(nil)
	}
	select {
	case g.busy <- struct{}{}:
		g.opened()
		return nil
	case <-ctx.Done():
		return g.stuck(ctx.Err())
	}
}

func (g *gate) opened() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.call, g.left = "", false
}

func (g *gate) leave() { <-g.busy }

func (g *gate) note(call string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.call, g.since = call, time.Now()
}

func (g *gate) abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
}

func (g *gate) isLeft() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left
}

func (g *gate) stuck(cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.call == "" {
		return errors.Join(errors.New(g.subject+" is busy"), cause)
	}
	return &StuckError{Subject: g.subject, Call: g.call, For: time.Since(g.since), cause: cause}
}

// undoing is the same task for what must be done although the caller has given
// up: taking back what would otherwise be left behind.
func (t *task) undoing() *task {
	return &task{ctx: context.WithoutCancel(t.ctx), gate: t.gate, nvml: t.nvml}
}

// sleep waits between two looks at the hardware.
func (t *task) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// ask makes one NVML call that answers with a value.
func ask[T any](t *task, call string, f func() (T, nvml.Return)) (T, error) {
	var none T
	if err := t.ctx.Err(); err != nil {
		return none, fmt.Errorf("%s: before NVML call %s: %w", t.gate.subject, call, err)
	}
	t.gate.note(call)
	value, ret := f()
	if ret != nvml.SUCCESS {
		return none, &CallError{Subject: t.gate.subject, Call: call, Return: ret}
	}
	return value, nil
}

// tell makes one NVML call that only succeeds or fails.
func tell(t *task, call string, f func() nvml.Return) error {
	_, err := ask(t, call, func() (struct{}, nvml.Return) { return struct{}{}, f() })
	return err
}
