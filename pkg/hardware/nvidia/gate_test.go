package nvidia

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
)

func withTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// settleFaults ends what hangs and waits until no card is held by it, so that
// nothing writes to the test's folder any more.
func (m *machine) settleFaults() {
	m.noFaults()
	m.mu.Lock()
	gates := []*gate{m.library}
	for _, g := range m.gates {
		gates = append(gates, g)
	}
	m.mu.Unlock()
	for _, g := range gates {
		g.busy <- struct{}{}
		<-g.busy
	}
}

func TestHungCallHoldsOnlyItsCard(t *testing.T) {
	m := simulated(t, "h100x8")
	cards := m.cards()
	hung, other := cards[0].PCIAddress, cards[1].PCIAddress
	m.faults(simulate.Faults{Calls: []simulate.CallFault{{Call: "GetMigMode", GPU: hung, Hang: true}}})
	t.Cleanup(m.settleFaults)

	ctx, cancel := withTimeout(t, 50*time.Millisecond)
	defer cancel()
	_, err := m.Live(ctx, hung)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "NVML call DeviceGetMigMode on card "+hung+" has not returned for ")

	// Who comes later is told at once, without waiting for his own deadline.
	start := time.Now()
	_, err = m.Live(t.Context(), hung)
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	assert.Equal(t, "DeviceGetMigMode", stuck.Call)
	assert.Less(t, time.Since(start), 5*time.Second)

	_, err = m.Live(t.Context(), other)
	assert.NoError(t, err, "other cards go on")

	m.settleFaults()
	_, err = m.Live(t.Context(), hung)
	assert.NoError(t, err, "the card is open again when the call is back")
}

func TestWaitingForABusyCardEndsWithTheContext(t *testing.T) {
	g := newGate("card x")
	inside, release := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = through(context.Background(), g, nil, func(task *task) (int, error) {
			return ask(task, "Slow", func() (int, nvml.Return) { close(inside); <-release; return 1, nvml.SUCCESS })
		})
	}()
	<-inside
	ctx, cancel := withTimeout(t, 20*time.Millisecond)
	defer cancel()
	_, err := through(ctx, g, nil, func(*task) (int, error) { return 2, nil })
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "NVML call Slow on card x")

	go close(release)
	value, err := through(t.Context(), g, nil, func(*task) (int, error) { return 3, nil })
	require.NoError(t, err, "one that can wait gets its turn")
	assert.Equal(t, 3, value)
}

func TestTaskThatWasLeftBehindMakesNoFurtherCalls(t *testing.T) {
	g := newGate("card x")
	ctx, cancel := context.WithCancel(t.Context())
	release, ended := make(chan struct{}), make(chan error, 1)
	_, err := through(ctx, g, nil, func(task *task) (int, error) {
		_, _ = ask(task, "First", func() (int, nvml.Return) { cancel(); <-release; return 1, nvml.SUCCESS })
		_, err := ask(task, "Second", func() (int, nvml.Return) { t.Error("called after the end"); return 2, nvml.SUCCESS })
		undone, undoErr := ask(task.undoing(), "Undo", func() (int, nvml.Return) { return 3, nvml.SUCCESS })
		ended <- errors.Join(err, undoErr)
		assert.Equal(t, 3, undone)
		return 0, err
	})
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	assert.ErrorContains(t, <-ended, "before NVML call Second")
}

func TestEndedContextMakesNoCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := through(ctx, newGate("card x"), nil, func(*task) (int, error) { t.Error("entered"); return 0, nil })
	assert.ErrorIs(t, err, context.Canceled)
}

func TestResultThatComesWithTheDeadlineIsNotThrownAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	value, err := through(ctx, newGate("card x"), nil, func(*task) (int, error) {
		cancel()
		time.Sleep(grace / 10)
		return 7, nil
	})
	require.NoError(t, err)
	assert.Equal(t, 7, value)
}
