package drivers

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// fakeVendor is a driver that notes what it is asked.
type fakeVendor struct {
	name gpu.Vendor
	// mu protects what follows.
	mu     sync.Mutex
	gpus   []gpu.GPU
	err    error
	loadID string
	asked  []string
	closed bool
}

func (f *fakeVendor) note(call, about string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, call+" "+about)
	return f.err
}

func (f *fakeVendor) Inventory(context.Context) ([]gpu.GPU, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus, f.err
}

func (f *fakeVendor) Live(_ context.Context, pciAddress string) ([]gpu.Partition, error) {
	return nil, f.note("Live", pciAddress)
}

func (f *fakeVendor) Create(_ context.Context, p gpu.Placement) (gpu.Partition, error) {
	return gpu.Partition{}, f.note("Create", p.GPU)
}

func (f *fakeVendor) Destroy(_ context.Context, p gpu.Placement) error {
	return f.note("Destroy", p.GPU)
}

func (f *fakeVendor) Edits(_ context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error) {
	return &cdispecs.ContainerEdits{}, f.note("Edits", p.GPU)
}

func (f *fakeVendor) CommonEdits(_ context.Context, pciAddresses []string) (*cdispecs.ContainerEdits, error) {
	name := string(f.name)
	edits := &cdispecs.ContainerEdits{
		Env:            []string{"OF=" + name},
		DeviceNodes:    []*cdispecs.DeviceNode{{Path: "/dev/" + name}},
		Hooks:          []*cdispecs.Hook{{Path: name}},
		Mounts:         []*cdispecs.Mount{{HostPath: "/" + name}},
		AdditionalGIDs: []uint32{uint32(len(name))},
	}
	for _, address := range pciAddresses {
		if err := f.note("CommonEdits", address); err != nil {
			return nil, err
		}
	}
	return edits, nil
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

func (f *fakeVendor) WatchHealth(ctx context.Context, _ func(gpu.HealthEvent)) error {
	<-ctx.Done()
	return nil
}

func (f *fakeVendor) CheckHealth(_ context.Context, pciAddress string) error {
	return f.note("CheckHealth", pciAddress)
}

func (f *fakeVendor) Recovered(_ context.Context, e gpu.HealthEvent) (bool, error) {
	return true, f.note("Recovered", e.PCIAddress)
}

// fakeSwitcher is one whose GPUs have modes, fakeRemover one whose partitions
// others may have made.
type (
	fakeSwitcher struct{ *fakeVendor }
	fakeRemover  struct{ *fakeVendor }
)

func (f fakeSwitcher) Obstacles(_ context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error) {
	if held {
		return nil, nil
	}
	return []gpu.Obstacle{{Placement: gpu.NameOf(pciAddress), Kind: gpu.ObstacleBusy}}, f.note("Obstacles", pciAddress)
}

func (fakeRemover) RemovalCommand(p gpu.Partition) string { return "remove " + p.ID }

const (
	nvidia1, amd1, nvidia2 = "0000:01:00.0", "0000:05:00.0", "0000:0a:00.0"
)

// bothVendors is hardware of two vendors whose GPUs alternate on the bus.
func bothVendors(t *testing.T) (h *Set, nv, amd *fakeVendor) {
	t.Helper()
	nv = &fakeVendor{name: gpu.NVIDIA, loadID: "boot/nvidia", gpus: []gpu.GPU{nodetest.GPUAt(nvidia1), nodetest.GPUAt(nvidia2)}}
	amd = &fakeVendor{name: gpu.AMD, loadID: "boot/amd", gpus: []gpu.GPU{nodetest.AMDGPUAt(amd1, "NPS1")}}
	h = &Set{}
	h.add(&Opened{Name: gpu.AMD, Driver: fakeSwitcher{amd}, loadID: "boot/amd"})
	h.add(&Opened{Name: gpu.NVIDIA, Driver: fakeRemover{nv}, loadID: "boot/nvidia"})
	_, err := h.Inventory(t.Context())
	require.NoError(t, err)
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
	ctx := t.Context()
	gpus, err := h.Inventory(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{nvidia1, amd1, nvidia2}, addressesOf(gpus), "in PCI order")

	var wanted []string
	for _, address := range []string{nvidia1, amd1} {
		p := gpu.Placement{GPU: address}
		_, err = h.Live(ctx, address)
		require.NoError(t, err)
		_, err = h.Create(ctx, p)
		require.NoError(t, err)
		require.NoError(t, h.Destroy(ctx, p))
		_, err = h.Edits(ctx, p)
		require.NoError(t, err)
		require.NoError(t, h.CheckHealth(ctx, address))
		over, err := h.Recovered(ctx, gpu.HealthEvent{PCIAddress: address})
		require.NoError(t, err)
		assert.True(t, over)
		if address == nvidia1 {
			for _, call := range []string{"Live", "Create", "Destroy", "Edits", "CheckHealth", "Recovered"} {
				wanted = append(wanted, call+" "+nvidia1)
			}
		}
	}
	assert.Equal(t, wanted, nv.asked)
	assert.Len(t, amd.asked, len(wanted))

	obstacles, err := h.Obstacles(ctx, amd1, false)
	require.NoError(t, err)
	assert.Len(t, obstacles, 1)
	obstacles, err = h.Obstacles(ctx, nvidia1, false)
	require.NoError(t, err)
	assert.Empty(t, obstacles, "it has no modes")
	assert.Equal(t, "remove GI 3", h.RemovalCommand(gpu.Partition{GPU: nvidia1, ID: "GI 3"}))
	assert.Empty(t, h.RemovalCommand(gpu.Partition{GPU: amd1, ID: "x"}))

	assert.Equal(t, "boot/amd", h.LoadID(amd1))
	assert.Equal(t, "boot/nvidia", h.LoadID(nvidia2))
	assert.Empty(t, h.LoadID("0000:ff:00.0"))
	_, err = h.Live(ctx, "0000:ff:00.0")
	require.EqualError(t, err, "no driver on this node serves GPU gpu-0000-ff-00-0")
	require.NoError(t, h.Close(ctx))
	assert.True(t, nv.closed && amd.closed)
}

// A container gets what the vendors of its own GPUs ask for, and no more.
func TestCommonEditsOfBothVendors(t *testing.T) {
	h, nv, amd := bothVendors(t)
	edits, err := h.CommonEdits(t.Context(), []string{amd1, nvidia1, nvidia2})
	require.NoError(t, err)
	assert.Equal(t, []string{"OF=nvidia", "OF=amd"}, edits.Env)
	assert.Len(t, edits.DeviceNodes, 2)
	assert.Len(t, edits.Hooks, 2)
	assert.Len(t, edits.Mounts, 2)
	assert.Equal(t, []uint32{6, 3}, edits.AdditionalGIDs)
	assert.Equal(t, []string{"CommonEdits " + nvidia1, "CommonEdits " + nvidia2}, nv.asked)
	assert.Equal(t, []string{"CommonEdits " + amd1}, amd.asked)

	edits, err = h.CommonEdits(t.Context(), []string{amd1})
	require.NoError(t, err)
	assert.Equal(t, []string{"OF=amd"}, edits.Env)
	amd.err = errors.New("no /dev/kfd")
	_, err = h.CommonEdits(t.Context(), []string{nvidia1, amd1})
	require.ErrorContains(t, err, "no /dev/kfd")
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
	nv.err, nv.gpus = &gpu.InventoryError{GPUs: []*gpu.Error{{PCIAddress: nvidia2, Err: errors.New("lost")}, {ID: "NVML index 3", Err: errors.New("dead")}}}, nv.gpus[:1]
	amd.err, amd.gpus = &gpu.InventoryError{GPUs: []*gpu.Error{{PCIAddress: amd1, Err: errors.New("in reset")}}}, nil
	l = h.List(ctx)
	assert.Equal(t, []string{nvidia1}, addressesOf(l.Found))
	assert.Equal(t, map[string]string{nvidia2: "lost", amd1: "in reset"}, l.Problems)
	assert.Equal(t, []gpu.Vendor{gpu.AMD}, l.Told, "one GPU is not named")
	assert.Empty(t, l.Failed)

	// Nothing is known of anything.
	nv.err, amd.err = silent, gone
	l = h.List(ctx)
	assert.Equal(t, map[gpu.Vendor]error{gpu.NVIDIA: silent, gpu.AMD: gone}, l.Failed)
	assert.Empty(t, l.Told)
	_, err := h.Inventory(ctx)
	require.ErrorIs(t, err, silent)
	require.ErrorIs(t, err, gone)
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
	require.NoError(t, h.Destroy(t.Context(), gpu.Placement{GPU: lost}))
	assert.Equal(t, []string{"Destroy " + lost}, amd.asked)
	assert.Empty(t, h.LoadID(stale), "nothing of it is left, whoever's it was")
}

// What one driver does does not depend on when the other one comes.
func TestDriverThatComesLater(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	nv := &fakeVendor{name: gpu.NVIDIA, loadID: "boot/nvidia", gpus: []gpu.GPU{nodetest.GPUAt(nvidia1)}}
	amd := &fakeVendor{name: gpu.AMD, loadID: "boot/amd", gpus: []gpu.GPU{nodetest.AMDGPUAt(amd1, "NPS1")}}
	var state error
	openers := []*Opener{
		{Name: gpu.NVIDIA, open: func(context.Context) (*hardware.Opened, error) {
			return &hardware.Opened{Driver: nv, LoadID: nv.loadID}, nil
		}},
		{Name: gpu.AMD, open: func(context.Context) (*hardware.Opened, error) {
			if errors.Is(state, hardware.ErrNoDriver) {
				return nil, state
			}
			if state != nil {
				return &hardware.Opened{LoadID: amd.loadID}, state
			}
			return &hardware.Opened{Driver: amd, LoadID: amd.loadID}, nil
		}},
	}
	h := &Set{}
	state = hardware.ErrNoDriver
	added, failed := h.OpenMissing(ctx, openers, nodetest.Patience)
	require.Len(t, added, 1)
	assert.Equal(t, map[gpu.Vendor]error{gpu.AMD: hardware.ErrNoDriver}, failed)
	h.Learn([]ledger.Record{{Devices: []ledger.Device{{Placement: gpu.Placement{GPU: amd1}, LoadID: "boot/amd"}}}})
	assert.Empty(t, h.LoadID(amd1))

	// It is loaded and cannot be used: what it holds stays held.
	state = errors.New("no permission")
	added, failed = h.OpenMissing(ctx, openers, nodetest.Patience)
	assert.Empty(t, added)
	assert.Len(t, failed, 1)
	h.Learn([]ledger.Record{{Devices: []ledger.Device{{Placement: gpu.Placement{GPU: amd1}, LoadID: "boot/amd"}}}})
	assert.Equal(t, "boot/amd", h.LoadID(amd1))
	require.EqualError(t, h.Destroy(ctx, gpu.Placement{GPU: amd1}), "the AMD driver of GPU gpu-0000-05-00-0 cannot be used: no permission")
	gpus, err := h.Inventory(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{nvidia1}, addressesOf(gpus))

	state = nil
	added, failed = h.OpenMissing(ctx, openers, nodetest.Patience)
	require.Len(t, added, 1)
	assert.Empty(t, failed)
	require.NoError(t, h.Destroy(ctx, gpu.Placement{GPU: amd1}))
	gpus, err = h.Inventory(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{nvidia1, amd1}, addressesOf(gpus))
	added, _ = h.OpenMissing(ctx, openers, nodetest.Patience)
	assert.Empty(t, added, "all are open")
}

// A driver that hangs while it is opened holds up nobody else, and is not opened
// again and again.
func TestDriverThatHangs(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	release, calls := make(chan struct{}), 0
	nv := &fakeVendor{name: gpu.NVIDIA, loadID: "boot/nvidia"}
	openers := []*Opener{
		{Name: gpu.NVIDIA, open: func(context.Context) (*hardware.Opened, error) { return &hardware.Opened{Driver: nv}, nil }},
		{Name: gpu.AMD, open: func(context.Context) (*hardware.Opened, error) {
			calls++
			<-release
			return &hardware.Opened{Driver: &fakeVendor{name: gpu.AMD}}, nil
		}},
	}
	h := &Set{}
	added, failed := h.OpenMissing(ctx, openers, nodetest.Tick)
	require.Len(t, added, 1)
	require.ErrorIs(t, failed[gpu.AMD], hardware.ErrNoDriver)
	require.ErrorContains(t, failed[gpu.AMD], "hangs while it is opened")
	_, failed = h.OpenMissing(ctx, openers, nodetest.Tick)
	assert.Len(t, failed, 1)
	close(release)
	added, failed = h.OpenMissing(ctx, openers, nodetest.Patience)
	assert.Len(t, added, 1)
	assert.Empty(t, failed)
	assert.Equal(t, 1, calls)
}
