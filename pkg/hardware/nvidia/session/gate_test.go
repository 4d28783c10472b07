package session_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func TestHungCallHoldsOnlyItsGPU(t *testing.T) {
	m := simulated(t, "h100x8")
	gpus := m.GPUs()
	hung, other := gpus[0].PCIAddress, gpus[1].PCIAddress
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMigMode", GPU: hung, Hang: true, Times: 1}}})
	t.Cleanup(m.SettleFaults)

	_, err := m.Live(m.UntilFault(), hung)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "NVML call DeviceGetMigMode on GPU "+hung+" has not returned since ")

	// Who comes later is told at once, without waiting for his own deadline.
	_, err = m.Live(t.Context(), hung)
	var stuck *session.StuckError
	require.ErrorAs(t, err, &stuck)
	assert.Equal(t, "DeviceGetMigMode", stuck.Call)

	_, err = m.Live(t.Context(), other)
	assert.NoError(t, err, "other GPUs go on")

	m.SettleFaults()
	_, err = m.Live(t.Context(), hung)
	assert.NoError(t, err, "the GPU is open again when the call is back")
}
