package session

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// StuckError is an NVML call that has not returned. The GPU stays closed until it does,
// because NVML calls cannot be cancelled.
type StuckError = hardware.StuckError

// NewGate makes a gate for NVML calls. The subject is what is behind it, for errors.
func NewGate(subject string) *hardware.Gate { return hardware.NewGate(subject, "NVML call") }

// Task is one holder of a gate. All NVML calls are made through it, with Ask and Tell.
type Task struct {
	*hardware.Task
	NVML   nvml.Interface
	Logger logr.Logger
}

// Through runs f alone at the gate. It returns when f does or when ctx ends, whichever
// is first. It waits while NVML is closed for the reset of a GPU, so f must not call it.
func Through[T any](ctx context.Context, s *Session, g *hardware.Gate, f func(*Task) (T, error)) (T, error) {
	return hardware.Through(ctx, g, func(t *hardware.Task) (T, error) {
		leave, err := s.enter(ctx, t)
		if err != nil {
			var none T
			return none, err
		}
		defer leave()
		return f(s.task(t))
	})
}

// OnLibrary runs f for what concerns no GPU. See Through.
func OnLibrary[T any](ctx context.Context, s *Session, f func(*Task) (T, error)) (T, error) {
	return Through(ctx, s, s.library, f)
}

func (s *Session) task(t *hardware.Task) *Task { return &Task{Task: t, NVML: s.nvml, Logger: s.logger} }

// Has reports whether the library has a function. A call of one that it does not have would end
// this process, because functions are bound at their first call.
func (t *Task) Has(symbol string) bool {
	extensions := t.NVML.Extensions()
	return extensions != nil && extensions.LookupSymbol(symbol) == nil
}

// Undoing returns the same task for what must be done although the caller has given up:
// to remove what would otherwise be left behind.
func (t *Task) Undoing() *Task { return &Task{Task: t.Task.Undoing(), NVML: t.NVML, Logger: t.Logger} }

// Ask makes one NVML call that returns a value. call is the name of the C function
// without "nvml".
func Ask[T any](t *Task, call string, f func() (T, nvml.Return)) (T, error) {
	return hardware.Ask(t.Task, call, func() (T, error) {
		value, ret := f()
		if ret != nvml.SUCCESS {
			var none T
			return none, &CallError{Subject: t.Subject(), Call: call, Return: ret}
		}
		return value, nil
	})
}

// Tell makes one NVML call that returns nothing but success or failure.
func Tell(t *Task, call string, f func() nvml.Return) error {
	_, err := Ask(t, call, func() (struct{}, nvml.Return) { return struct{}{}, f() })
	return err
}
