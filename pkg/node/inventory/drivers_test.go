package inventory

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// fakeVendor is a driver that notes what it is asked.
type fakeVendor struct {
	hardware.Driver
	name gpu.Vendor
	// mu protects what follows.
	mu     sync.Mutex
	gpus   []gpu.GPU
	err    error
	loadID string
	closed bool
}

func (f *fakeVendor) Inventory(context.Context) ([]gpu.GPU, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus, f.err
}

func (f *fakeVendor) LoadID() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loadID == "" {
		return "", fs.ErrNotExist
	}
	return f.loadID, nil
}

func (f *fakeVendor) Close(context.Context) error { f.closed = true; return nil }

const (
	nvidia1, amd1, nvidia2 = "0000:01:00.0", "0000:05:00.0", "0000:0a:00.0"
)

// bothVendors is hardware of two vendors whose GPUs alternate on the bus.
func bothVendors(t *testing.T) (h *Drivers, nv, amd *fakeVendor) {
	t.Helper()
	nv = &fakeVendor{name: gpu.NVIDIA, loadID: "boot/nvidia", gpus: []gpu.GPU{nodetest.GPUAt(nvidia1), nodetest.GPUAt(nvidia2)}}
	amd = &fakeVendor{name: gpu.AMD, loadID: "boot/amd", gpus: []gpu.GPU{nodetest.AMDGPUAt(amd1, "NPS1")}}
	h = &Drivers{}
	h.add(&VendorDriver{Name: gpu.AMD, Driver: amd, loadID: "boot/amd"})
	h.add(&VendorDriver{Name: gpu.NVIDIA, Driver: nv, loadID: "boot/nvidia"})
	require.Empty(t, h.List(t.Context()).Failed)
	return h, nv, amd
}

func addressesOf(gpus []gpu.GPU) []string {
	var addresses []string
	for i := range gpus {
		addresses = append(addresses, gpus[i].PCIAddress)
	}
	return addresses
}

func TestGPUsOfBothVendors(t *testing.T) {
	h, nv, amd := bothVendors(t)
	assert.Equal(t, []string{nvidia1, amd1, nvidia2}, addressesOf(h.List(t.Context()).Found), "in PCI order")
	for address, want := range map[string]hardware.Driver{nvidia1: nv, nvidia2: nv, amd1: amd} {
		driver, err := h.Of(address)
		require.NoError(t, err)
		assert.Same(t, want, driver)
	}
	_, err := h.Of("0000:ff:00.0")
	require.EqualError(t, err, "no driver on this node serves GPU gpu-0000-ff-00-0")
	assert.Equal(t, "boot/amd", h.LoadID(amd1))
	assert.Equal(t, "boot/nvidia", h.LoadID(nvidia2))
	assert.Empty(t, h.LoadID("0000:ff:00.0"))
	mps := func() (all [2]string) {
		vendor, load := h.LoadWithMPS()
		return [2]string{string(vendor), load}
	}
	assert.Empty(t, mps())
	resumed := 0
	h.add(&VendorDriver{Name: gpu.NVIDIA, Driver: nv, loadID: "boot/nvidia", ProgramRoot: "/run", Resume: func(context.Context) error { resumed++; return errors.New("no module") }})
	assert.Equal(t, [2]string{"nvidia", "boot/nvidia"}, mps())
	h.Resume(nodetest.Quiet(t.Context()))
	assert.Equal(t, 1, resumed)
	require.NoError(t, h.Close(t.Context()))
	assert.True(t, nv.closed && amd.closed)
}

// A vendor that fails affects its own GPUs only.
func TestOneVendorFails(t *testing.T) {
	h, nv, amd := bothVendors(t)
	ctx := nodetest.Quiet(t.Context())
	silent, gone := errors.New("NVML does not answer"), errors.New("no sysfs")
	nv.err = silent
	l := h.List(ctx)
	assert.Equal(t, []string{amd1}, addressesOf(l.Found))
	assert.Empty(t, l.Problems)
	assert.Equal(t, map[gpu.Vendor]error{gpu.NVIDIA: silent}, l.Failed)
	assert.Equal(t, []gpu.Vendor{gpu.AMD}, l.Told)

	// Some GPUs of each.
	nv.err, nv.gpus = &gpu.InventoryError{GPUs: []*gpu.Error{{PCIAddress: nvidia2, Err: gpu.ErrLost}, {ID: "NVML index 3", Err: errors.New("dead")}}}, nv.gpus[:1]
	amd.err, amd.gpus = &gpu.InventoryError{GPUs: []*gpu.Error{{PCIAddress: amd1, Err: errors.New("in reset")}}}, nil
	l = h.List(ctx)
	assert.Equal(t, []string{nvidia1}, addressesOf(l.Found))
	assert.Equal(t, map[string]gpu.Problem{nvidia2: {Cause: gpu.CauseLost, Message: "lost"}, amd1: {Cause: gpu.CauseCheck, Message: "in reset"}}, l.Problems)
	assert.Equal(t, []gpu.Vendor{gpu.AMD}, l.Told, "one GPU is not named")
	assert.Empty(t, l.Failed)

	// Nothing is known of anything.
	nv.err, amd.err = silent, gone
	l = h.List(ctx)
	assert.Equal(t, map[gpu.Vendor]error{gpu.NVIDIA: silent, gpu.AMD: gone}, l.Failed)
	assert.Empty(t, l.Told)
}

// A driver that is reloaded while the plugin runs is another load for its own
// GPUs, and for nobody else's.
func TestReloadOfOneVendor(t *testing.T) {
	h, _, amd := bothVendors(t)
	amd.loadID = "boot/amd2"
	assert.Equal(t, "boot/nvidia", h.LoadID(nvidia1))
	require.Eventually(t, func() bool { return h.LoadID(amd1) == "boot/amd2" }, nodetest.Patience, nodetest.Tick)
	amd.loadID = "" // unloaded
	h.All()[1].loadIDRead = h.All()[1].loadIDRead.Add(-2 * loadIDAge)
	assert.Equal(t, "boot/amd2", h.LoadID(amd1), "what it held is gone when it is back, not before")
	h.CannotUse(gpu.AMD, nil, errors.New("no permission"))
	assert.Empty(t, h.LoadID(amd1), "no partition survives that")
}

// A driver that is being replaced is not opened, which whoever asked for that knows. The new one may need
// a new process.
func TestOpenDuringAnUpgrade(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	h, warnings := withOpeners([]*opener{{name: gpu.NVIDIA, open: func(context.Context) (*hardware.Opened, error) { return nil, hardware.ErrRestart }}})
	upgrades := map[gpu.Vendor]string{gpu.NVIDIA: "a label"}
	var stopped error
	h.cfg.Upgrades, h.cfg.Stop = func() map[gpu.Vendor]string { return upgrades }, func(err error) { stopped = err }
	assert.Empty(t, h.Open(ctx))
	assert.True(t, h.IsUpgrading(gpu.NVIDIA))
	require.NoError(t, h.Problem(), "the node had no such GPU")
	h.cfg.Roster = &Roster{gpus: map[string]*rosterGPU{nvidia1: {GPU: nodetest.GPUAt(nvidia1)}}}
	assert.Empty(t, h.Open(ctx))
	require.EqualError(t, h.Problem(), "the NVIDIA driver of this node cannot be used: it was released for a driver upgrade, which a label requests")
	require.NoError(t, stopped)
	upgrades = nil
	assert.Empty(t, h.Open(ctx))
	assert.False(t, h.IsUpgrading(gpu.NVIDIA))
	require.ErrorIs(t, stopped, hardware.ErrRestart)
	assert.Empty(t, *warnings)
}

// A GPU that does not answer at a start is in no inventory. What claims hold on
// it under a load that lasts is known from the ledger.
func TestVendorOfGPUThatDoesNotAnswer(t *testing.T) {
	h, _, amd := bothVendors(t)
	const lost, stale = "0000:06:00.0", "0000:07:00.0"
	h.Learn([]ledger.Record{{Devices: []ledger.Device{
		{Placement: gpu.Placement{GPU: lost}, LoadID: "boot/amd"},
		{Placement: gpu.Placement{GPU: stale}, LoadID: "earlier boot/amd"},
	}}})
	driver, err := h.Of(lost)
	require.NoError(t, err)
	assert.Same(t, amd, driver)
	assert.Empty(t, h.LoadID(stale), "nothing of it is left, whoever's it was")

	const silent, broken = "0000:08:00.0", "0000:09:00.0"
	h.Expect([]gpu.GPU{{PCIAddress: silent, Vendor: gpu.AMD}})
	amd.err = &gpu.InventoryError{GPUs: []*gpu.Error{{PCIAddress: broken, Err: errors.New("in reset")}}}
	h.List(nodetest.Quiet(t.Context()))
	for _, address := range []string{silent, broken} {
		driver, err = h.Of(address)
		require.NoError(t, err)
		assert.Same(t, amd, driver, address)
	}
}

// What one driver does does not depend on when the other one comes.
func TestDriverThatComesLater(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	nv := &fakeVendor{name: gpu.NVIDIA, loadID: "boot/nvidia", gpus: []gpu.GPU{nodetest.GPUAt(nvidia1)}}
	amd := &fakeVendor{name: gpu.AMD, loadID: "boot/amd", gpus: []gpu.GPU{nodetest.AMDGPUAt(amd1, "NPS1")}}
	var state error
	openers := []*opener{
		{name: gpu.NVIDIA, open: func(context.Context) (*hardware.Opened, error) {
			return &hardware.Opened{Driver: nv, LoadID: nv.loadID}, nil
		}},
		{name: gpu.AMD, open: func(context.Context) (*hardware.Opened, error) {
			if errors.Is(state, hardware.ErrNoDriver) {
				return nil, state
			}
			if state != nil {
				return &hardware.Opened{LoadID: amd.loadID}, state
			}
			return &hardware.Opened{Driver: amd, LoadID: amd.loadID}, nil
		}},
	}
	h, warnings := withOpeners(openers)
	state = hardware.ErrNoDriver
	require.Len(t, h.Open(ctx), 1)
	assert.Equal(t, hardware.ErrNoDriver, h.WhyNot(gpu.AMD))
	require.NoError(t, h.Problem(), "it is not expected")
	assert.Equal(t, hardware.ErrNoDriver.Error(), h.WhyNone())
	h.Learn([]ledger.Record{{Devices: []ledger.Device{{Placement: gpu.Placement{GPU: amd1}, LoadID: "boot/amd"}}}})
	assert.Empty(t, h.LoadID(amd1))

	// It is loaded and cannot be used: what it holds stays held.
	state = errors.New("no permission")
	for range 2 {
		assert.Empty(t, h.Open(ctx))
	}
	require.ErrorContains(t, h.Problem(), "the AMD driver of this node cannot be used: no permission")
	assert.Len(t, *warnings, 1, "it is reported once")
	h.Learn([]ledger.Record{{Devices: []ledger.Device{{Placement: gpu.Placement{GPU: amd1}, LoadID: "boot/amd"}}}})
	assert.Equal(t, "boot/amd", h.LoadID(amd1))
	_, err := h.Of(amd1)
	require.EqualError(t, err, "the AMD driver of GPU gpu-0000-05-00-0 cannot be used: no permission")
	assert.Equal(t, []string{nvidia1}, addressesOf(h.List(ctx).Found))

	state = nil
	require.Len(t, h.Open(ctx), 1)
	require.NoError(t, h.Problem())
	driver, err := h.Of(amd1)
	require.NoError(t, err)
	assert.Same(t, amd, driver)
	assert.Equal(t, []string{nvidia1, amd1}, addressesOf(h.List(ctx).Found))
	assert.Empty(t, h.Open(ctx), "all are open")
}

// noted notes the messages of events.
type noted struct{ messages *[]string }

func (n noted) Warn(_ context.Context, _, message string) { *n.messages = append(*n.messages, message) }

// withOpeners are Drivers that open drivers, and the warnings that it writes.
func withOpeners(openers []*opener) (*Drivers, *[]string) {
	var warnings []string
	return &Drivers{openers: openers, cfg: DriversConfig{
		Upgrades: func() map[gpu.Vendor]string { return nil },
		Roster:   &Roster{},
		Events:   noted{&warnings},
	}}, &warnings
}

// A driver that hangs while it is opened holds up nobody else, and is not opened
// again and again.
func TestDriverThatHangs(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	release, calls := make(chan struct{}), 0
	nv := &fakeVendor{name: gpu.NVIDIA, loadID: "boot/nvidia"}
	openers := []*opener{
		{name: gpu.NVIDIA, open: func(context.Context) (*hardware.Opened, error) { return &hardware.Opened{Driver: nv}, nil }},
		{name: gpu.AMD, open: func(context.Context) (*hardware.Opened, error) {
			calls++
			<-release
			return &hardware.Opened{Driver: &fakeVendor{name: gpu.AMD}}, nil
		}},
	}
	h, _ := withOpeners(openers)
	h.cfg.patience = nodetest.Tick
	require.Len(t, h.Open(ctx), 1)
	require.ErrorIs(t, h.WhyNot(gpu.AMD), hardware.ErrNoDriver)
	require.ErrorContains(t, h.WhyNot(gpu.AMD), "hangs while it is opened")
	assert.Empty(t, h.Open(ctx))
	close(release)
	h.cfg.patience = nodetest.Patience
	assert.Len(t, h.Open(ctx), 1)
	require.NoError(t, h.WhyNot(gpu.AMD))
	assert.Equal(t, 1, calls)
}

// A driver that does not list its GPUs is reported once, until it has listed them.
func TestUnlistedIsReportedOnce(t *testing.T) {
	h, warnings := withOpeners(nil)
	silent := map[gpu.Vendor]error{gpu.AMD: errors.New("no answer")}
	for _, step := range []struct {
		failed map[gpu.Vendor]error
		events int
	}{{silent, 1}, {silent, 1}, {nil, 1}, {silent, 2}} {
		h.SetUnlisted(t.Context(), step.failed)
		assert.Len(t, *warnings, step.events)
		assert.Equal(t, step.failed == nil, h.Problem() == nil)
	}
	assert.Contains(t, (*warnings)[1], "Tranche cannot list the AMD GPUs of this node, which is retried: no answer")
}
