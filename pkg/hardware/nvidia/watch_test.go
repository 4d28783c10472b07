package nvidia

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// watching is a WatchHealth that runs until the test ends.
type watching struct {
	*machine
	mu     sync.Mutex
	events []gpu.HealthEvent
}

// watchHealth starts watching, with frequent looks.
func (m *machine) watchHealth() *watching {
	m.T.Helper()
	w := &watching{machine: m}
	ctx, cancel := context.WithCancel(m.T.Context())
	done := make(chan error, 1)
	go func() {
		watcher := m.newWatcher(func(e gpu.HealthEvent) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		})
		watcher.lookEvery = 200 * time.Millisecond
		done <- watcher.run(ctx)
	}()
	m.T.Cleanup(func() {
		cancel()
		assert.NoError(m.T, <-done)
	})
	return w
}

// xid raises an error until it is reported: what happens before the GPUs are
// registered is not.
func (w *watching) xid(address string, number uint64, instance *int) gpu.HealthEvent {
	w.T.Helper()
	return w.xidBeside(nvdriver.Faults{}, nvdriver.XID{GPU: address, GPUInstance: instance, XID: number})
}

// xidBeside is xid beside other faults.
func (w *watching) xidBeside(faults nvdriver.Faults, x nvdriver.XID) gpu.HealthEvent {
	w.T.Helper()
	var got gpu.HealthEvent
	require.Eventually(w.T, func() bool {
		faults.XIDs = nil
		w.SetFaults(faults)
		time.Sleep(30 * time.Millisecond) // the simulator looks every 20 ms
		faults.XIDs = []nvdriver.XID{x}
		w.SetFaults(faults)
		for range 10 {
			if e, ok := w.last(x.GPU, x.XID); ok {
				got = e
				return true
			}
			time.Sleep(20 * time.Millisecond)
		}
		return false
	}, time.Minute, time.Millisecond)
	return got
}

func (w *watching) last(address string, number uint64) (gpu.HealthEvent, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.events) - 1; i >= 0; i-- {
		if e := w.events[i]; e.PCIAddress == address && e.XID == number {
			return e, true
		}
	}
	return gpu.HealthEvent{}, false
}

// forget forgets the events so far.
func (w *watching) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
}

func (w *watching) count(address string, number uint64) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.PCIAddress == address && e.XID == number {
			n++
		}
	}
	return n
}

func TestWatchHealthReportsByClass(t *testing.T) {
	w := simulated(t, "h100x8").watchHealth()
	first, second := "0000:1b:00.0", "0000:43:00.0"
	load, err := w.LoadID()
	require.NoError(t, err)

	e := w.xid(first, 79, nil)
	assert.True(t, e.Fatal)
	assert.Equal(t, load, e.LoadID)
	assert.NotZero(t, e.Energy)
	assert.Nil(t, e.GPUInstance)
	assert.Equal(t, gpu.XIDCause(79), e.Cause)
	assert.Contains(t, e.Message, "GPU 0000:1b:00.0: XID 79: the GPU fell off the bus; drain and reboot the node")

	two := 2
	e = w.xid(second, 94, &two)
	assert.False(t, e.Fatal)
	assert.Equal(t, 2, *e.GPUInstance)
	e = w.xid(second, 95, &two)
	assert.True(t, e.Fatal, "a fatal one counts for the whole GPU")
	assert.True(t, w.xid(second, 4711, nil).Fatal, "and so does one that nobody knows")

	// A program's own errors are not reported, nor is a recovery action that
	// is none.
	w.SetFaults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: second, XID: 31}, {GPU: second, XID: 109}, {GPU: second, XID: 154}}})
	w.xid(second, 63, nil)
	for _, number := range []uint64{31, 109, 154} {
		assert.Zero(t, w.count(second, number), "XID %d", number)
	}
	assert.Zero(t, w.count(first, 95), "the GPUs are told apart")
}

func TestWatchHealthAsksWhatARecoveryActionMeans(t *testing.T) {
	w := simulated(t, "h100x8").watchHealth()
	address := "0000:1b:00.0"
	w.xid(address, 63, nil)
	w.SetFaults(nvdriver.Faults{
		XIDs:     []nvdriver.XID{{GPU: address, XID: 154}},
		Recovery: []nvdriver.Recovery{{GPU: address, Action: "drainAndReset"}},
	})
	require.Eventually(t, func() bool { return w.count(address, 154) == 1 }, time.Minute, 10*time.Millisecond)
	e, _ := w.last(address, 154)
	assert.True(t, e.Fatal)
	assert.Contains(t, e.Message, "the driver asks for a reset of the GPU once nobody uses it")
}

func TestWatchHealthReportsALostGPUOnceAndTakesItUpAgain(t *testing.T) {
	w := simulated(t, "h100x8").watchHealth()
	gone, other := "0000:1b:00.0", "0000:43:00.0"
	w.xid(gone, 63, nil)
	w.SetFaults(nvdriver.Faults{Lost: []string{gone}})
	require.Eventually(t, func() bool { return w.count(gone, 0) == 1 }, time.Minute, 10*time.Millisecond)
	e, _ := w.last(gone, 0)
	assert.True(t, e.Fatal)
	assert.Contains(t, e.Message, "ERROR_GPU_IS_LOST")
	w.SetFaults(nvdriver.Faults{Lost: []string{gone}, XIDs: []nvdriver.XID{{GPU: other, XID: 119}}})
	require.Eventually(t, func() bool { return w.count(other, 119) == 1 }, time.Minute, 10*time.Millisecond, "the others are still watched")
	assert.Zero(t, w.count(other, 0))
	assert.Equal(t, 1, w.count(gone, 0))

	w.NoFaults()
	w.xid(gone, 95, nil) // it is back, and watched
	w.forget()
	w.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetTotalEnergyConsumption", GPU: gone, Error: nvdriver.Return(nvml.ERROR_GPU_IS_LOST)}}})
	require.Eventually(t, func() bool { return w.count(gone, 0) == 1 }, time.Minute, 10*time.Millisecond, "whichever call tells")
}

// freed is a set of events that counts how often it is freed.
type freed struct {
	nvml.EventSet
	times int
}

func (f *freed) Free() nvml.Return { f.times++; return nvml.SUCCESS }

// A set that a call may still use is not freed: the library would write to freed memory.
func TestSetThatAHangingCallUses(t *testing.T) {
	m := simulated(t, "l4x4")
	for want, err := range []error{&session.StuckError{}, nvml.ERROR_TIMEOUT} {
		set := &freed{}
		s := &watch{watcher: m.newWatcher(nil), set: set, gpus: map[string]nvml.Device{}}
		require.NoError(t, s.note(glance{err: err}))
		require.NoError(t, s.note(glance{err: nvml.ERROR_TIMEOUT}))
		s.free(t.Context())
		assert.Equal(t, want, set.times, err)
	}
}

func TestWatchHealthSurvivesALostSession(t *testing.T) {
	m := simulated(t, "l4x4")
	w := m.watchHealth()
	address := "0000:17:00.0"
	w.xid(address, 63, nil)
	require.Equal(t, nvml.SUCCESS, m.cfg.NVML.Shutdown())
	w.xid(address, 95, nil)
}

func TestWatchHealthOutlivesAReload(t *testing.T) {
	m := simulated(t, "h100x8")
	w := m.watchHealth()
	address := "0000:1b:00.0"
	before := w.xid(address, 95, nil)
	require.NoError(t, nvdriver.ReloadDriver(m.Root))
	require.Eventually(t, func() bool {
		w.forget()
		return w.xid(address, 64, nil).LoadID != before.LoadID
	}, time.Minute, time.Millisecond, "the reload is not seen")
}

// deaf is a GPU without events.
type deaf struct {
	nvml.Device
	kinds uint64
	ret   nvml.Return
}

func (d deaf) GetSupportedEventTypes() (uint64, nvml.Return)            { return d.kinds, nvml.SUCCESS }
func (d deaf) RegisterEvents(kinds uint64, _ nvml.EventSet) nvml.Return { return d.ret }

func TestGPUsThatCannotBeWatchedAreReportedOnce(t *testing.T) {
	for name, g := range map[string]deaf{
		"no events":     {},
		"not supported": {kinds: nvml.EventTypeXidCriticalError, ret: nvml.ERROR_NOT_SUPPORTED},
	} {
		t.Run(name, func(t *testing.T) {
			m := simulated(t, "l4x4", trapping(func(d nvml.Device) nvml.Device {
				if uuid, _ := d.GetUUID(); uuid == "" {
					return d
				}
				if info, _ := d.GetPciInfo(); info.Bus != 0x17 {
					return d
				}
				return deaf{d, g.kinds, g.ret}
			}))
			w := m.watchHealth()
			w.xid("0000:31:00.0", 95, nil)
			require.Equal(t, 1, w.count("0000:17:00.0", 0))
			e, _ := w.last("0000:17:00.0", 0)
			assert.False(t, e.Fatal)
			assert.Contains(t, e.Message, "GPU 0000:17:00.0 cannot be watched for errors")
			require.Equal(t, nvml.SUCCESS, m.cfg.NVML.Shutdown()) // a new session
			w.xid("0000:31:00.0", 64, nil)
			assert.Equal(t, 1, w.count("0000:17:00.0", 0))
		})
	}
}

func TestAGPUThatSpoilsTheSetIsLeftAlone(t *testing.T) {
	m := simulated(t, "l4x4")
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "RegisterEvents", GPU: "0000:17:00.0", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}}})
	w := m.newWatcher(func(gpu.HealthEvent) {})
	require.ErrorIs(t, w.session(t.Context()), nvml.ERROR_UNKNOWN)
	assert.Contains(t, w.shunned, "0000:17:00.0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	assert.NoError(t, w.session(ctx), "the next set goes without it")
}

func TestWithoutEventsWatchHealthEnds(t *testing.T) {
	m := simulated(t, "l4x4")
	m.Fail("EventSetCreate", nvml.ERROR_NOT_SUPPORTED, 0)
	assert.ErrorIs(t, m.WatchHealth(t.Context(), func(gpu.HealthEvent) {}), nvml.ERROR_NOT_SUPPORTED)
}

func TestAGPUThatHangsDoesNotKeepTheOthersFromBeingWatched(t *testing.T) {
	m := simulated(t, "l4x4")
	hangs := nvdriver.CallFault{Call: "RegisterEvents", GPU: "0000:17:00.0", Hang: true}
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{hangs}})
	t.Cleanup(m.NoFaults)
	w := m.watchHealth()
	w.xidBeside(nvdriver.Faults{Calls: []nvdriver.CallFault{hangs}}, nvdriver.XID{GPU: "0000:31:00.0", XID: 79})
}

// Only what concerns a GPU's health is told: no other event, no program's error, and no recovery action
// that is none.
func TestEventsThatAreNotTold(t *testing.T) {
	m := simulated(t, "l4x4")
	var told []string
	s := &watch{watcher: m.newWatcher(func(e gpu.HealthEvent) { told = append(told, e.Message) }), gpus: map[string]nvml.Device{}}
	for _, event := range []nvml.EventData{
		{EventType: nvml.EventTypeClock}, {EventType: nvml.EventTypeGpuRecoveryAction}, {EventType: nvml.EventTypeXidCriticalError, EventData: 31},
		{EventType: nvml.EventTypeDoubleBitEccError},
	} {
		event.Device, event.GpuInstanceId = m.Device(0), noInstance
		s.tell(t.Context(), event)
	}
	assert.Equal(t, []string{lookupXID(48).describe("0000:17:00.0", 48, nil)}, told)
}
