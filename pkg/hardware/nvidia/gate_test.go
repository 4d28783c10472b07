package nvidia

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
)

func withTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// settleFaults ends what hangs and waits until no GPU is held by it, so that
// nothing writes to the test's folder any more.
func (m *machine) settleFaults() {
	m.t.Helper()
	m.noFaults()
	require.Eventually(m.t, func() bool {
		_, err := m.Inventory(context.WithoutCancel(m.t.Context()))
		return err == nil
	}, 10*time.Second, time.Millisecond, "it passes every gate")
}

func TestHungCallHoldsOnlyItsGPU(t *testing.T) {
	m := simulated(t, "h100x8")
	gpus := m.gpus()
	hung, other := gpus[0].PCIAddress, gpus[1].PCIAddress
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMigMode", GPU: hung, Hang: true}}})
	t.Cleanup(m.settleFaults)

	ctx, cancel := withTimeout(t, 50*time.Millisecond)
	defer cancel()
	_, err := m.Live(ctx, hung)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "NVML call DeviceGetMigMode on GPU "+hung+" has not returned since ")

	// Who comes later is told at once, without waiting for his own deadline.
	start := time.Now()
	_, err = m.Live(t.Context(), hung)
	var stuck *session.StuckError
	require.ErrorAs(t, err, &stuck)
	assert.Equal(t, "DeviceGetMigMode", stuck.Call)
	assert.Less(t, time.Since(start), 5*time.Second)

	_, err = m.Live(t.Context(), other)
	assert.NoError(t, err, "other GPUs go on")

	m.settleFaults()
	_, err = m.Live(t.Context(), hung)
	assert.NoError(t, err, "the GPU is open again when the call is back")
}
