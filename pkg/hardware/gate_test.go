package hardware

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/sleep"
)

// hold enters the gate with a call that lasts until release is closed.
func hold(g *Gate) (inside, release chan struct{}) {
	inside, release = make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = Through(context.Background(), g, func(task *Task) (int, error) {
			return Ask(task, "Slow", func() (int, error) { close(inside); <-release; return 1, nil })
		})
	}()
	return inside, release
}

func TestWaitingForABusyGateEndsWithTheContext(t *testing.T) {
	g := NewGate("GPU x", "NVML call")
	inside, release := hold(g)
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Through(ctx, g, func(*Task) (int, error) { return 2, nil })
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "NVML call Slow on GPU x")
	require.ErrorIs(t, g.Settle(ctx), context.DeadlineExceeded)

	go close(release)
	value, err := Through(t.Context(), g, func(*Task) (int, error) { return 3, nil })
	require.NoError(t, err, "one that can wait gets its turn")
	assert.Equal(t, 3, value)
}

func TestTaskThatWasLeftBehindMakesNoFurtherCalls(t *testing.T) {
	synctest.Test(t, leftBehind)
}

func leftBehind(t *testing.T) {
	g := NewGate("GPU x", "")
	ctx, cancel := context.WithCancel(t.Context())
	release, ended := make(chan struct{}), make(chan error, 1)
	_, err := Through(ctx, g, func(task *Task) (int, error) {
		_, _ = Ask(task, "First", func() (int, error) { cancel(); <-release; return 1, nil })
		_, err := Ask(task, "Second", func() (int, error) { t.Error("called after the end"); return 2, nil })
		undone, undoErr := Ask(task.Undoing(), "Undo", func() (int, error) { return 3, nil })
		ended <- errors.Join(err, undoErr, sleep.For(task.Context(), time.Hour))
		assert.Equal(t, 3, undone)
		return 0, err
	})
	require.ErrorIs(t, err, context.Canceled)

	// Who comes later is told when the call counts as one that hangs, and from then
	// on at once.
	start := time.Now()
	_, err = Through(t.Context(), g, func(*Task) (int, error) { t.Error("entered"); return 0, nil })
	assert.Error(t, err)
	assert.InDelta(t, hangs, time.Since(start), float64(2*grace))
	start = time.Now()
	_, err = Through(t.Context(), g, func(*Task) (int, error) { t.Error("entered"); return 0, nil })
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	assert.Equal(t, "First", stuck.Call)
	assert.Zero(t, time.Since(start))
	assert.NoError(t, stuck.Unwrap(), "it was no deadline of his")

	close(release)
	assert.ErrorContains(t, <-ended, "GPU x: before Second")
	require.NoError(t, g.Settle(t.Context()))
	assert.EqualError(t, whoWaits(t, g), "GPU x is busy\ncontext deadline exceeded", "the gate is open again when the call is back")
}

// whoWaits enters the gate, and returns what others are told meanwhile.
func whoWaits(t *testing.T, g *Gate) error {
	_, err := Through(t.Context(), g, func(*Task) (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		return Through(ctx, g, func(*Task) (int, error) { return 0, nil })
	})
	return err
}

func TestATaskThatWasLeftBehindAndComesBackIsWaitedFor(t *testing.T) {
	g := NewGate("GPU x", "")
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	_, err := Through(ctx, g, func(task *Task) (int, error) {
		return Ask(task, "Slow", func() (int, error) { cancel(); <-release; return 1, nil })
	})
	require.ErrorIs(t, err, context.Canceled)
	go close(release)
	assert.EqualError(t, whoWaits(t, g), "GPU x is busy\ncontext deadline exceeded", "nothing is told of the earlier call")
}

func TestEndedContextMakesNoCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Through(ctx, NewGate("GPU x", ""), func(*Task) (int, error) { t.Error("entered"); return 0, nil })
	assert.ErrorIs(t, err, context.Canceled)
}

func TestResultThatComesWithTheDeadlineIsNotThrownAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	value, err := Through(ctx, NewGate("GPU x", ""), func(*Task) (int, error) {
		cancel()
		time.Sleep(grace / 10)
		return 7, nil
	})
	require.NoError(t, err)
	assert.Equal(t, 7, value)
}

func TestGateWithoutACallIsJustBusy(t *testing.T) {
	g := NewGate("GPU x", "")
	inside, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	go func() {
		_, _ = Through(context.Background(), g, func(task *Task) (int, error) {
			assert.Equal(t, "GPU x", task.Subject())
			assert.NoError(t, task.Context().Err())
			close(inside)
			<-release
			return 0, nil
		})
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	assert.EqualError(t, g.Settle(ctx), "GPU x is busy\ncontext deadline exceeded")
}

// The text is the same whenever the GPU is looked at while the call hangs.
func TestStuckErrorSaysSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate("GPU 0000:c1:00.0", "NVML call")
		inside, release := hold(g)
		<-inside
		look := func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := Through(ctx, g, func(*Task) (int, error) { return 0, nil })
			return err.Error()
		}
		since := time.Now().UTC().Format(time.RFC3339)
		first := look()
		assert.Equal(t, "NVML call Slow on GPU 0000:c1:00.0 has not returned since "+since, first)
		time.Sleep(time.Minute)
		assert.Equal(t, first, look())
		close(release)
	})
	err := &StuckError{Subject: "GPU 0000:c1:00.0", Call: "writing current_compute_partition", Since: time.Date(2026, 11, 22, 9, 8, 7, 6, time.UTC)}
	assert.EqualError(t, err, "writing current_compute_partition on GPU 0000:c1:00.0 has not returned since 2026-11-22T09:08:07Z")
}
