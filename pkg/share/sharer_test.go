package share_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/share"
)

const gib = 1 << 30

var errScripted = errors.New("scripted failure")

// fakeGPUs writes down how GPUs are set.
type fakeGPUs struct {
	hardware.Driver
	mu    sync.Mutex
	calls []string
	mode  string
	err   error
}

func (c *fakeGPUs) driver(string) (hardware.Driver, error) { return c, nil }

// noDriver is a node whose driver cannot be used.
func noDriver(string) (hardware.Driver, error) { return nil, errNoDriver }

var errNoDriver = errors.New("the driver cannot be used")

func (c *fakeGPUs) call(format string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
	return c.err
}

// took returns what was done since it was asked last.
func (c *fakeGPUs) took() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (c *fakeGPUs) SetTimeSlice(_ context.Context, gpuID string, slice gpu.TimeSlice) error {
	return c.call("%s slice %s", gpuID, slice)
}

func (c *fakeGPUs) Settings(context.Context, string) (gpu.Settings, error) {
	return gpu.Settings{ComputeMode: c.mode}, c.err
}

func (c *fakeGPUs) SetComputeMode(_ context.Context, gpuID, mode string) error {
	return c.call("%s mode %s", gpuID, mode)
}

// fakeDaemons keeps daemons in memory.
type fakeDaemons struct {
	specs    map[string]mps.Spec
	statuses map[string]mps.Status
	// next is how a daemon is that was just started.
	next     mps.Status
	startErr error
	stopErr  error
}

func newDaemons() *fakeDaemons {
	return &fakeDaemons{specs: map[string]mps.Spec{}, statuses: map[string]mps.Status{}, next: mps.Status{Ready: true}}
}

func (d *fakeDaemons) running() share.Runner { return d }

func (d *fakeDaemons) Start(_ context.Context, spec mps.Spec) error {
	if d.startErr != nil {
		return d.startErr
	}
	d.specs[spec.ID], d.statuses[spec.ID] = spec, d.next
	return nil
}

func (d *fakeDaemons) Status(id string) mps.Status {
	status, ok := d.statuses[id]
	if !ok {
		return mps.Status{Gone: true}
	}
	return status
}

func (d *fakeDaemons) Wait(_ context.Context, id string) error {
	return fmt.Errorf("waited for %s", id)
}

func (d *fakeDaemons) Stop(_ context.Context, id string) error {
	if d.stopErr != nil {
		return d.stopErr
	}
	delete(d.specs, id)
	delete(d.statuses, id)
	return nil
}

func (d *fakeDaemons) List() ([]string, error) {
	return slices.Sorted(maps.Keys(d.specs)), nil
}

func (d *fakeDaemons) PipeDir(id string) string { return "/mps/" + id + "/pipe" }
func (d *fakeDaemons) ShmDir(id string) string  { return "/mps/" + id + "/shm" }

func newSharer() (*share.Sharer, *fakeGPUs, *fakeDaemons) {
	gpus, daemons := &fakeGPUs{mode: gpu.ComputeDefault}, newDaemons()
	return share.New(share.Config{Driver: gpus.driver, Daemons: daemons.running, NoMPS: func() error { return nil }}), gpus, daemons
}

func address(n int) string { return fmt.Sprintf("0000:%02x:00.0", n+1) }

// device is what a claim has of the whole n-th GPU by memory.
func device(n int, s gpu.Sharing, amount gpu.Amount) ledger.Device {
	by := gpu.ByMemory
	if amount.Fraction > 0 {
		by = gpu.ByFraction
	}
	p := gpu.ShareOf(gpu.Placement{GPU: address(n), Type: gpu.TypeGPU, Memory: 80 * gib}, by, s)
	return ledger.Device{Name: p.Name(), Placement: p, ShareID: types.UID(fmt.Sprint("share-", n, amount)), Amount: &amount, UUID: fmt.Sprint("GPU-", n), LoadID: "boot-1"}
}

// limitedTo gives a share a limit above its request.
func limitedTo(gibs int64, d ledger.Device) ledger.Device {
	d.MemoryLimit = gibs * gib
	return d
}

func ofPartition(t gpu.Type) ledger.Device {
	p := gpu.ShareOf(gpu.Placement{GPU: address(0), Type: t, Profile: "p", Memory: 40 * gib}, gpu.ByMemory, gpu.Sharing{Strategy: gpu.TimeSlicing, TimeSlice: gpu.LongSlice})
	return ledger.Device{Name: p.Name(), Placement: p, Amount: &gpu.Amount{Memory: 10 * gib}, UUID: "MIG-1"}
}

func memory(gibs int64) gpu.Amount { return gpu.Amount{Memory: gibs * gib, Clients: 1} }

var (
	plain     = gpu.Sharing{Strategy: gpu.TimeSlicing}
	sliced    = gpu.Sharing{Strategy: gpu.TimeSlicing, TimeSlice: gpu.LongSlice}
	limited   = gpu.Sharing{Strategy: gpu.TimeSlicing, Limits: true}
	byMPS     = gpu.Sharing{Strategy: gpu.MPS, Limits: true}
	exclusive = gpu.Sharing{Strategy: gpu.MPS, Limits: true, ExclusiveProcess: true}
	byKernel  = gpu.Sharing{Strategy: gpu.TimeSlicing, KernelLimits: true}
)

// holds is the first of a claim's devices.
func holds(devices ...ledger.Device) claim.Holder {
	return claim.Holder{
		Claim:  ledger.ClaimRef{UID: "uid-a", Namespace: "team", Name: "a"},
		Device: devices[0], Devices: devices,
	}
}

func beside(h claim.Holder, others ...ledger.Device) claim.Holder {
	h.Others = others
	return h
}

// The first share sets the time slice, those after it find it, and the last one
// takes it back.
func TestTimeSlice(t *testing.T) {
	s, gpus, _ := newSharer()
	h := holds(device(0, sliced, memory(1)))
	other := device(0, sliced, memory(2))
	before, err := s.Settings(t.Context(), h.Device.Placement)
	require.NoError(t, err)
	assert.Nil(t, before)
	set, back := []string{address(0) + " slice Long"}, []string{address(0) + " slice Default"}

	require.NoError(t, s.Join(t.Context(), h))
	assert.Equal(t, set, gpus.took())
	require.NoError(t, s.Join(t.Context(), beside(h, other)))
	assert.Empty(t, gpus.took(), "it is set")
	require.NoError(t, s.Join(t.Context(), h))
	assert.Equal(t, set, gpus.took(), "somebody else may have set it back since")
	require.NoError(t, s.Leave(t.Context(), beside(h, other)))
	assert.Empty(t, gpus.took())
	reloaded := beside(h, other)
	reloaded.Device.LoadID = "boot-2"
	require.NoError(t, s.Join(t.Context(), reloaded))
	assert.Equal(t, set, gpus.took(), "a new load of the driver knows nothing of it")
	require.NoError(t, s.Leave(t.Context(), h))
	assert.Equal(t, back, gpus.took())
	require.NoError(t, s.Join(t.Context(), reloaded))
	assert.Equal(t, set, gpus.took())

	// A plugin that has just started does not know what another has set.
	s, gpus, daemons := newSharer()
	require.NoError(t, s.Join(t.Context(), beside(h, other)))
	assert.Equal(t, set, gpus.took())
	assert.Empty(t, daemons.specs)
}

func TestTimeSliceThatIsNotSet(t *testing.T) {
	s, gpus, _ := newSharer()
	byDefault := plain
	byDefault.TimeSlice = gpu.DefaultSlice
	exclusiveMIG, slicedMPS := ofPartition(gpu.TypeMIG), byMPS
	exclusiveMIG.Placement.Share.Sharing, slicedMPS.TimeSlice = exclusive, gpu.LongSlice
	for _, d := range []ledger.Device{device(0, plain, memory(1)), device(0, slicedMPS, memory(1)), exclusiveMIG, ofPartition(gpu.TypeMIG), ofPartition(gpu.TypeXCP)} {
		before, err := s.Settings(t.Context(), d.Placement)
		require.NoError(t, err)
		assert.Nil(t, before)
		require.NoError(t, s.Join(t.Context(), holds(d)))
		require.NoError(t, s.Leave(t.Context(), holds(d)))
		assert.Empty(t, gpus.took(), d.Name)
	}
	h := holds(device(0, sliced, memory(1)))
	h.Lapsed = true
	require.NoError(t, s.Leave(t.Context(), h))
	assert.Empty(t, gpus.took(), "the driver that had it is gone")
	require.NoError(t, s.Join(t.Context(), holds(device(0, byDefault, memory(1)))))
	require.NoError(t, s.Leave(t.Context(), holds(device(0, byDefault, memory(1)))))
	assert.Equal(t, []string{address(0) + " slice Default"}, gpus.took())
}

// A GPU that knows no time slices is shared without.
func TestTimeSliceFails(t *testing.T) {
	s, gpus, _ := newSharer()
	h := holds(device(0, sliced, memory(1)))
	gpus.err = fmt.Errorf("time slices: %w", gpu.ErrNotSupported)
	require.NoError(t, s.Join(t.Context(), h))
	require.NoError(t, s.Leave(t.Context(), h))
	gpus.err = errScripted
	require.ErrorIs(t, s.Join(t.Context(), h), errScripted)
	require.ErrorIs(t, s.Leave(t.Context(), h), errScripted)
	s = share.New(share.Config{Driver: noDriver})
	require.ErrorIs(t, s.Join(t.Context(), h), errNoDriver)
	require.ErrorIs(t, s.Leave(t.Context(), h), errNoDriver)
	h.Lapsed = true
	require.NoError(t, s.Leave(t.Context(), h), "there is nothing to set back")
}

// A claim has one daemon for all its shares, which knows what it has of each GPU.
func TestDaemonOfAClaim(t *testing.T) {
	compute := func(gibs, percent int64) gpu.Amount {
		return gpu.Amount{Memory: gibs * gib, Compute: percent, Clients: 1}
	}
	for name, tt := range map[string]struct {
		devices []ledger.Device
		want    mps.Spec
	}{
		"memory":              {[]ledger.Device{device(0, limited, memory(2))}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-0", MemoryLimit: 2 * gib}}}},
		"limit above request": {[]ledger.Device{limitedTo(3, device(0, limited, memory(2)))}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-0", MemoryLimit: 3 * gib}}}},
		"fraction":            {[]ledger.Device{device(0, limited, gpu.Amount{Fraction: 500, Memory: 40 * gib})}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-0", MemoryLimit: 40 * gib}}}},
		"compute":             {[]ledger.Device{device(0, limited, compute(2, 30))}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-0", MemoryLimit: 2 * gib}}, ThreadPercentage: 30}},
		"two GPUs":            {[]ledger.Device{device(1, limited, compute(1, 30)), device(0, limited, compute(2, 30))}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-1", MemoryLimit: gib}, {UUID: "GPU-0", MemoryLimit: 2 * gib}}, ThreadPercentage: 30}},
		"two of one GPU":      {[]ledger.Device{device(0, limited, compute(1, 30)), device(0, limited, compute(2, 20))}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-0", MemoryLimit: 3 * gib}}, ThreadPercentage: 50}},
		"one of them without": {[]ledger.Device{device(0, limited, compute(1, 30)), device(0, limited, memory(2))}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-0", MemoryLimit: 3 * gib}}}},
		"first one without":   {[]ledger.Device{device(0, limited, memory(1)), device(0, limited, compute(2, 30))}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-0", MemoryLimit: 3 * gib}}}},
		"beside a whole GPU":  {[]ledger.Device{device(1, limited, memory(1)), {Placement: gpu.Placement{GPU: address(0), Type: gpu.TypeGPU}}}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-1", MemoryLimit: gib}}}},
		"beside a partition":  {[]ledger.Device{device(1, limited, memory(1)), ofPartition(gpu.TypeMIG)}, mps.Spec{Devices: []mps.Device{{UUID: "GPU-1", MemoryLimit: gib}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, gpus, daemons := newSharer()
			tt.want.ID = "uid-a"
			h := holds(tt.devices...)
			require.NoError(t, s.Join(t.Context(), h))
			require.NoError(t, s.Join(t.Context(), h), "a second time")
			assert.Equal(t, map[string]mps.Spec{"uid-a": tt.want}, daemons.specs)
			running, err := s.Running()
			require.NoError(t, err)
			assert.Equal(t, []string{"uid-a"}, running)
			require.NoError(t, s.Leave(t.Context(), beside(h, device(0, limited, memory(9)))), "others have their own")
			assert.Empty(t, daemons.specs)
			assert.Empty(t, gpus.took(), "the compute mode is left alone")
		})
	}
}

// With the strategy MPS all claims of a GPU have one daemon, which goes with the
// last of them.
func TestDaemonOfAGPU(t *testing.T) {
	s, gpus, daemons := newSharer()
	h, other := holds(device(0, byMPS, memory(2))), device(0, byMPS, memory(3))
	require.NoError(t, s.Join(t.Context(), h))
	assert.Equal(t, map[string]mps.Spec{"gpu-0000-01-00-0": {ID: "gpu-0000-01-00-0", Devices: []mps.Device{{UUID: "GPU-0"}}}}, daemons.specs)
	require.NoError(t, s.Leave(t.Context(), beside(h, other)))
	assert.Len(t, daemons.specs, 1)
	last := h
	last.Lapsed = true
	require.NoError(t, s.Leave(t.Context(), last), "also after a new load of the driver")
	assert.Empty(t, daemons.specs)
	assert.Empty(t, gpus.took())
	require.NoError(t, s.Leave(t.Context(), last), "a second time")
}

// The compute mode of before comes back with the last holder, after its daemon has
// ended.
func TestExclusiveProcess(t *testing.T) {
	s, gpus, daemons := newSharer()
	gpus.mode = gpu.ComputeProhibited
	h, other := holds(device(0, exclusive, memory(2))), device(0, exclusive, memory(3))
	require.ErrorContains(t, s.Join(t.Context(), h), "the previous settings of GPU gpu-0000-01-00-0 are not known")
	require.NoError(t, s.Leave(t.Context(), h), "nothing was changed")
	before, err := s.Settings(t.Context(), h.Device.Placement)
	require.NoError(t, err)
	assert.Equal(t, &gpu.Settings{ComputeMode: gpu.ComputeProhibited}, before)
	h.Device.Before = before
	require.NoError(t, s.Join(t.Context(), h))
	assert.Equal(t, []string{address(0) + " mode ExclusiveProcess"}, gpus.took())
	require.NoError(t, s.Leave(t.Context(), beside(h, other)))
	assert.Empty(t, gpus.took())
	daemons.stopErr = errScripted
	require.ErrorIs(t, s.Leave(t.Context(), h), errScripted)
	assert.Empty(t, gpus.took())
	daemons.stopErr = nil
	require.NoError(t, s.Leave(t.Context(), h))
	assert.Equal(t, []string{address(0) + " mode Prohibited"}, gpus.took())
	h.Lapsed = true
	require.NoError(t, s.Leave(t.Context(), h))
	assert.Empty(t, gpus.took())

	// A GPU in MIG mode has no compute mode: the release must not fail for ever.
	h.Lapsed = false
	gpus.err = gpu.ErrNotSupported
	require.NoError(t, s.Leave(t.Context(), h))
	gpus.err = gpu.ErrLost
	require.ErrorIs(t, s.Leave(t.Context(), h), gpu.ErrLost)

	gpus.err = errScripted
	_, err = s.Settings(t.Context(), h.Device.Placement)
	require.ErrorIs(t, err, errScripted)
	without := share.New(share.Config{Driver: noDriver, Daemons: daemons.running})
	_, err = without.Settings(t.Context(), h.Device.Placement)
	require.ErrorIs(t, err, errNoDriver)
	require.ErrorIs(t, without.Join(t.Context(), h), errNoDriver)
}

func TestDaemonIsNotReady(t *testing.T) {
	s, _, daemons := newSharer()
	h := holds(device(0, limited, memory(2)))
	daemons.next = mps.Status{}
	err := s.Join(t.Context(), h)
	var notReady *claim.NotReadyError
	require.ErrorAs(t, err, &notReady)
	assert.Equal(t, "MPS daemon uid-a", notReady.What)
	require.EqualError(t, notReady.Wait(t.Context()), "waited for uid-a")

	daemons.next = mps.Status{Err: errScripted}
	require.ErrorIs(t, s.Join(t.Context(), h), errScripted)
	daemons.startErr = errors.New("another one")
	require.EqualError(t, s.Join(t.Context(), h), "another one")
}

func TestJoinRefuses(t *testing.T) {
	noLimits := gpu.Sharing{Strategy: gpu.MPS}
	percent := func(n int64) gpu.Amount { return gpu.Amount{Memory: gib, Compute: n} }
	for name, tt := range map[string]struct {
		devices []ledger.Device
		config  share.Config
		message string
	}{
		"MPS is missing": {
			[]ledger.Device{device(0, noLimits, memory(1))}, share.Config{Daemons: newDaemons().running, NoMPS: func() error { return errors.New("nvidia-cuda-mps-control is not in /usr/bin") }},
			"GPU gpu-0000-01-00-0 is shared by MPS, which does not work on this node: nvidia-cuda-mps-control is not in /usr/bin; fix that, or choose the strategy TimeSlicing for the GPU",
		},
		"MPS was not there":      {[]ledger.Device{device(0, noLimits, memory(1))}, share.Config{Daemons: newDaemons().running}, "no probe of an MPS daemon has succeeded since the plugin started"},
		"no daemons at all":      {[]ledger.Device{device(0, byMPS, memory(1))}, share.Config{}, "is shared by MPS, which does not work on this node"},
		"limits without daemons": {[]ledger.Device{device(0, limited, memory(1))}, share.Config{}, "has shares with memory limits, which MPS enforces, and MPS does not work on this node"},
		"MPS on two GPUs": {
			[]ledger.Device{device(0, byMPS, memory(1)), device(1, byMPS, memory(1))}, share.Config{Daemons: newDaemons().running},
			"claim team/a has shares of GPUs gpu-0000-01-00-0 and gpu-0000-02-00-0, each with an MPS daemon of its own, and a process can use one daemon only: ask for shares of one GPU, make a claim for each, or choose the strategy TimeSlicing for the GPUs",
		},
		"both kinds of daemon": {[]ledger.Device{device(0, limited, memory(1)), device(1, byMPS, memory(1))}, share.Config{Daemons: newDaemons().running}, "a process can use one daemon only"},
		"two compute limits":   {[]ledger.Device{device(0, limited, percent(30)), device(1, limited, percent(40))}, share.Config{Daemons: newDaemons().running}, "claim team/a asks for 30 % of the compute units of one GPU and for 40 % of another's"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, share.New(tt.config).Join(t.Context(), holds(tt.devices...)), tt.message)
			if tt.config.Daemons != nil {
				assert.Empty(t, tt.config.Daemons().(*fakeDaemons).specs)
			}
		})
	}
	// Two shares by MPS of one GPU have one daemon.
	s, _, _ := newSharer()
	require.NoError(t, s.Join(t.Context(), holds(device(0, byMPS, memory(1)), device(0, byMPS, memory(2)))))
}

// Where there is no MPS, what was set up for a share before is left to whoever
// brings it back.
func TestWithoutDaemons(t *testing.T) {
	s := share.New(share.Config{})
	require.NoError(t, s.Leave(t.Context(), holds(device(0, limited, memory(1)))))
	running, err := s.Running()
	require.NoError(t, err)
	assert.Empty(t, running)
	assert.Empty(t, s.Check([]ledger.Record{{Claim: ledger.ClaimRef{UID: "a"}, State: ledger.Prepared, Devices: []ledger.Device{device(0, limited, memory(1))}}}))
}
