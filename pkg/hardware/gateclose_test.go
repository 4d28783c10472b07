package hardware

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClosedGate(t *testing.T) {
	g := NewGate("GPU x", "")
	task, reopen, err := g.Close(t.Context(), "the driver is reloaded")
	require.NoError(t, err)
	value, err := Ask(task, "Slow", func() (int, error) { return 1, nil })
	require.NoError(t, err)
	assert.Equal(t, 1, value, "its own calls go on")
	err = task.Stuck(context.DeadlineExceeded)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "Slow on GPU x has not returned since")

	_, err = Through(t.Context(), g, func(*Task) (int, error) { return 2, nil })
	var closed *ClosedError
	require.ErrorAs(t, err, &closed)
	require.EqualError(t, err, "GPU x: the driver is reloaded")
	_, _, err = g.Close(t.Context(), "twice")
	require.ErrorAs(t, err, &closed)

	reopen()
	reopen()
	value, err = Through(t.Context(), g, func(*Task) (int, error) { return 3, nil })
	require.NoError(t, err)
	assert.Equal(t, 3, value)
}

// Who waits when the gate is closed is told too, and closing waits for its turn.
func TestClosingABusyGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate("GPU x", "")
		inside, release := hold(g)
		<-inside
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := g.Close(ctx, "no")
		require.ErrorIs(t, err, context.DeadlineExceeded)

		closing := make(chan func())
		go func() {
			_, reopen, err := g.Close(t.Context(), "the driver is reloaded")
			assert.NoError(t, err)
			closing <- reopen
		}()
		synctest.Wait()
		waited := make(chan error)
		go func() {
			_, err := Through(t.Context(), g, func(*Task) (int, error) { return 0, nil })
			waited <- err
		}()
		synctest.Wait()
		close(release)
		reopen := <-closing
		assert.EqualError(t, <-waited, "GPU x: the driver is reloaded")
		reopen()
	})
}

// Who finds the gate closed is told at once.
func TestAClosedGateRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate("GPU x", "NVML call")
		_, reopen, err := g.Close(t.Context(), "it is being reset")
		require.NoError(t, err)
		begin := time.Now()
		_, err = Through(t.Context(), g, func(*Task) (int, error) { return 1, nil })
		closed := &ClosedError{}
		require.ErrorAs(t, err, &closed)
		assert.Equal(t, &ClosedError{Subject: "GPU x", Why: "it is being reset"}, closed)
		assert.Equal(t, begin, time.Now())
		reopen()
		_, err = Through(t.Context(), g, func(*Task) (int, error) { return 1, nil })
		assert.NoError(t, err)
	})
}
