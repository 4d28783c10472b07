package nvidia

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/gate"
)

// StuckError is an NVML call that has not come back. The GPU stays closed
// until it does, because NVML calls cannot be cancelled.
type StuckError = gate.StuckError

func newGate(subject string) *gate.Gate { return gate.New(subject, "NVML call") }

// task is one holder of a gate. All NVML calls are made through it.
type task struct {
	*gate.Task
	nvml    nvml.Interface
	session *session
}

// through runs f alone at the gate and returns when f does or ctx ends,
// whichever is first. It waits while NVML is let go of for the reset of a GPU, so f
// must not come here again.
func through[T any](ctx context.Context, d *Driver, g *gate.Gate, f func(*task) (T, error)) (T, error) {
	return gate.Through(ctx, g, func(t *gate.Task) (T, error) {
		leave, err := d.session.enter(ctx, t)
		if err != nil {
			var none T
			return none, err
		}
		defer leave()
		return f(d.task(t))
	})
}

func (d *Driver) task(t *gate.Task) *task {
	return &task{Task: t, nvml: d.cfg.NVML, session: d.session}
}

// undoing is the same task for what must be done although the caller has given
// up: taking back what would otherwise be left behind.
func (t *task) undoing() *task {
	return &task{Task: t.Undoing(), nvml: t.nvml, session: t.session}
}

// ask makes one NVML call that answers with a value.
func ask[T any](t *task, call string, f func() (T, nvml.Return)) (T, error) {
	return gate.Ask(t.Task, call, func() (T, error) {
		value, ret := f()
		if ret != nvml.SUCCESS {
			var none T
			return none, &CallError{Subject: t.Subject(), Call: call, Return: ret}
		}
		return value, nil
	})
}

// tell makes one NVML call that only succeeds or fails.
func tell(t *task, call string, f func() nvml.Return) error {
	_, err := ask(t, call, func() (struct{}, nvml.Return) { return struct{}{}, f() })
	return err
}
