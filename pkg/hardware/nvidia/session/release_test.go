package session_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// A driver that was released keeps nobody from taking the module out, and nothing
// opens NVML again.
func TestRelease(t *testing.T) {
	nvidiatest.InProcess(t)
	library := &countedSets{made: make(chan struct{}, 8)}
	m := simulated(t, "h100x8", func(c *Config) { library.Interface, c.NVML = c.NVML, library })
	gpuID := m.GPUs()[0].PCIAddress
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { assert.NoError(t, m.WatchHealth(ctx, func(gpu.HealthEvent) {})) })
	<-library.made
	require.ErrorIs(t, nvdriver.UnloadDriver(m.Root), nvdriver.ErrModuleInUse)

	cancel()
	closing := make(chan struct{})
	library.ending = func() { close(closing) }
	waits := make(chan error, 1)
	go func() {
		<-closing
		_, err := m.Live(context.WithoutCancel(t.Context()), gpuID)
		waits <- err
	}()
	require.NoError(t, m.Release(t.Context()))
	require.ErrorIs(t, <-waits, session.ErrReleased, "who comes meanwhile does not wait for ever")
	watch.Wait()
	assert.Equal(t, []int64{0}, library.ended, "no set of events outlives the session")
	_, err := m.Live(t.Context(), gpuID)
	require.ErrorIs(t, err, session.ErrReleased)
	require.ErrorIs(t, m.Open(t.Context()), session.ErrReleased)
	require.NoError(t, m.Close(t.Context()))
	require.NoError(t, nvdriver.UnloadDriver(m.Root))
	_, err = m.LoadID()
	require.Error(t, err, "no module, no load")
}

// A call that hangs is in the library, which must stay loaded then. What does not hang
// is as before.
func TestReleaseWhileACallHangs(t *testing.T) {
	m := simulated(t, "h100x8")
	gpus := m.GPUs()
	hang := nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMigMode", GPU: gpus[0].PCIAddress, Hang: true, Times: 1}}}
	require.NoError(t, nvdriver.SetFaults(m.Root, hang))
	_, err := m.Live(m.UntilFault(), gpus[0].PCIAddress)
	require.Error(t, err)
	soon, cancelSoon := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancelSoon()
	require.ErrorContains(t, m.Release(soon), "NVML calls of this plugin have not returned")
	_, err = m.Live(t.Context(), gpus[1].PCIAddress)
	require.NoError(t, err)
	require.NoError(t, nvdriver.SetFaults(m.Root, nvdriver.Faults{}))
	require.Eventually(t, func() bool { return m.Release(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
}
