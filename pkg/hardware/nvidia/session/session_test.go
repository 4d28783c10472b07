package session_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// countedSets is a library that counts the sets of events that there are.
type countedSets struct {
	nvml.Interface
	open  atomic.Int64
	made  chan struct{}
	ended []int64
	// ending is called before the library is closed; may be nil.
	ending func()
}

func (l *countedSets) EventSetCreate() (nvml.EventSet, nvml.Return) {
	set, ret := l.Interface.EventSetCreate()
	if ret != nvml.SUCCESS {
		return set, ret
	}
	l.open.Add(1)
	l.made <- struct{}{}
	return countedSet{set, l}, ret
}

func (l *countedSets) Shutdown() nvml.Return {
	l.ended = append(l.ended, l.open.Load())
	if l.ending != nil {
		l.ending()
	}
	return l.Interface.Shutdown()
}

type countedSet struct {
	nvml.EventSet
	library *countedSets
}

func (s countedSet) Free() nvml.Return {
	s.library.open.Add(-1)
	return s.EventSet.Free()
}

// A set of events that outlived its session would be used after its end.
func TestSetsOfEventsAreFreedBeforeAReset(t *testing.T) {
	nvidiatest.InProcess(t)
	library := &countedSets{made: make(chan struct{}, 8)}
	m, smi := ampere(t, "a100-40x8-mig-off", func(c *Config) { library.Interface, c.NVML = c.NVML, library })
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { assert.NoError(t, m.WatchHealth(ctx, func(gpu.HealthEvent) {})) })
	<-library.made
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1})
	require.NoError(t, m.SetMIG(t.Context(), ampere0, true, false))
	assert.Equal(t, []int64{0}, library.ended)
	assert.Len(t, smi.Ran, 1)
	<-library.made // and then it watches again
	cancel()
	watch.Wait()
	assert.Zero(t, library.open.Load())
}

func TestTasksWaitForTheReset(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	other := m.GPUs()[1].PCIAddress
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1})
	var others sync.WaitGroup
	var over atomic.Bool
	smi.First = func() {
		for range 3 {
			others.Go(func() {
				_, err := m.Live(t.Context(), other)
				assert.NoError(t, err)
				assert.True(t, over.Load(), "there is no session of NVML during the reset")
			})
		}
		others.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := m.Inventory(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded, "nor does anybody wait longer than told")
		})
		_, err := m.Live(canceled(t), other)
		assert.ErrorIs(t, err, context.Canceled)
		over.Store(true)
	}
	require.NoError(t, m.SetMIG(t.Context(), ampere0, true, false))
	others.Wait()
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A call that hangs keeps our session open, and nvidia-smi would be refused.
func TestResetBesideACallThatHangs(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	other := m.GPUs()[1].PCIAddress
	m.SetFaults(nvdriver.Faults{
		Calls:  []nvdriver.CallFault{{Call: "GetGpuInstances", GPU: other, Hang: true}, {Call: "GetUUID", GPU: other, Hang: true}},
		Resets: []nvstate.ResetFault{{GPU: ampere0, Refused: true, Times: 1}},
	})
	hanging, cancel := context.WithTimeout(t.Context(), 2*time.Second) // enough for the call to begin on a busy machine
	defer cancel()
	_, err := m.Create(hanging, gpu.Placement{GPU: other, Type: gpu.TypeGPU})
	require.Error(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err = m.SetMIG(ctx, ampere0, true, false)
	require.ErrorIs(t, err, gpu.ErrNeedsReset)
	assert.ErrorContains(t, err, "have not returned")
	assert.Empty(t, smi.Ran)
	m.RequireMIGOf(ampere0, gpu.MIGOff, gpu.MIGOff)
	m.SettleFaults()
	require.NoError(t, m.SetMIG(t.Context(), ampere0, true, false))
}

func TestOneResetAtATime(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	gpus := m.GPUs()
	m.RefuseResets(
		nvstate.ResetFault{GPU: gpus[0].PCIAddress, Refused: true, Times: 1},
		nvstate.ResetFault{GPU: gpus[1].PCIAddress, Refused: true, Times: 1},
	)
	var inside atomic.Int64
	smi.First = func() {
		assert.EqualValues(t, 1, inside.Add(1))
		inside.Add(-1)
	}
	var resets sync.WaitGroup
	for _, g := range gpus[:2] {
		resets.Go(func() { assert.NoError(t, m.SetMIG(t.Context(), g.PCIAddress, true, false)) })
	}
	resets.Wait()
	assert.Len(t, smi.Ran, 2)
	require.NoError(t, m.Close(t.Context()))
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, m.Config.NVML.Shutdown(), "every Init had its Shutdown")
}

// unclosed is a library that may not close.
type unclosed struct {
	nvml.Interface
	stays atomic.Bool
}

func (l *unclosed) Shutdown() nvml.Return {
	if l.stays.Load() {
		return nvml.ERROR_UNKNOWN
	}
	return l.Interface.Shutdown()
}

// While NVML does not close, no GPU is reset, the driver is not released, and calls go on.
func TestNVMLThatDoesNotClose(t *testing.T) {
	nvidiatest.InProcess(t)
	library := &unclosed{}
	m, smi := ampere(t, "a100-40x8-mig-off", func(c *Config) { library.Interface, c.NVML = c.NVML, library })
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1})
	library.stays.Store(true)
	err := m.SetMIG(t.Context(), ampere0, true, false)
	require.ErrorIs(t, err, gpu.ErrNeedsReset)
	assert.ErrorContains(t, err, "close NVML: ")
	assert.Empty(t, smi.Ran)
	require.ErrorContains(t, m.Release(t.Context()), "close NVML: ")
	m.RequireMIGOf(ampere0, gpu.MIGOff, gpu.MIGOff)
	library.stays.Store(false)
	require.NoError(t, m.Release(t.Context()))
}
