package nvidia

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// expiring is a context whose deadline passes when the test says so.
type expiring struct {
	context.Context
	passed chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.passed }

func (e expiring) Err() error {
	select {
	case <-e.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// untilFault returns a context whose deadline passes once the first fault of calls, which has a
// number of times, has come true.
func (m *machine) untilFault() context.Context {
	m.t.Helper()
	e := expiring{m.t.Context(), make(chan struct{})}
	go func() {
		defer close(e.passed)
		for e.Context.Err() == nil {
			if st, err := nvstate.Store(m.root).Read(); err == nil && st.FiredFaults["calls/0"] > 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return e
}

// settleFaults ends what hangs and waits until no GPU is held by it, so that
// nothing writes to the test's folder any more.
func (m *machine) settleFaults() {
	m.t.Helper()
	m.noFaults()
	require.Eventually(m.t, func() bool {
		_, err := m.Inventory(context.WithoutCancel(m.t.Context()))
		return err == nil
	}, time.Minute, time.Millisecond, "it passes every gate")
}

func TestHungCallHoldsOnlyItsGPU(t *testing.T) {
	m := simulated(t, "h100x8")
	gpus := m.gpus()
	hung, other := gpus[0].PCIAddress, gpus[1].PCIAddress
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMigMode", GPU: hung, Hang: true, Times: 1}}})
	t.Cleanup(m.settleFaults)

	_, err := m.Live(m.untilFault(), hung)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "NVML call DeviceGetMigMode on GPU "+hung+" has not returned since ")

	// Who comes later is told at once, without waiting for his own deadline.
	_, err = m.Live(t.Context(), hung)
	var stuck *session.StuckError
	require.ErrorAs(t, err, &stuck)
	assert.Equal(t, "DeviceGetMigMode", stuck.Call)

	_, err = m.Live(t.Context(), other)
	assert.NoError(t, err, "other GPUs go on")

	m.settleFaults()
	_, err = m.Live(t.Context(), hung)
	assert.NoError(t, err, "the GPU is open again when the call is back")
}
