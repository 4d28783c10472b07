package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// The GPUs of these tests.
const (
	hopper = "0000:01:00.0"
	other  = "0000:02:00.0" // another Hopper
	ampere = "0000:03:00.0"
	plain  = "0000:04:00.0" // knows no MIG
	mi300  = "0000:81:00.0"
	mi300b = "0000:82:00.0"
	mi210  = "0000:83:00.0" // has no modes
)

func mig(gpuID, profile string, start, size int) gpu.Placement {
	return gpu.Placement{GPU: gpuID, Type: gpu.TypeMIG, Profile: profile, Start: start, Size: size}
}

// ones are 1g.10gb partitions at places.
func ones(gpuID string, starts ...int) []gpu.Placement {
	var all []gpu.Placement
	for _, start := range starts {
		all = append(all, mig(gpuID, "1g.10gb", start, 1))
	}
	return all
}

func three(gpuID string, start int) gpu.Placement { return mig(gpuID, "3g.40gb", start, 4) }

func wholeOf(gpuID string) gpu.Placement { return gpu.Placement{GPU: gpuID, Type: gpu.TypeGPU} }

func xcp(gpuID, profile string, index int) gpu.Placement {
	if profile == "spx" {
		return gpu.Placement{GPU: gpuID, Type: gpu.TypeGPU, Profile: profile}
	}
	return gpu.Placement{GPU: gpuID, Type: gpu.TypeXCP, Profile: profile, Start: index}
}

func shareOf(p gpu.Placement) gpu.Placement { return gpu.ShareOf(p, gpu.ByMemory, gpu.Sharing{}) }

func partitionAt(p gpu.Placement) gpu.Partition {
	return gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, UUID: "MIG-" + p.Name(), Complete: true, ID: "GI 1"}
}

func partitions(placements ...gpu.Placement) []gpu.Partition {
	var all []gpu.Partition
	for _, p := range placements {
		all = append(all, partitionAt(p))
	}
	return all
}

// fakeGPU is a GPU in memory.
type fakeGPU struct {
	gpu.GPU
	modes gpu.Modes
	live  []gpu.Partition
	// resets reports whether a reset succeeds where one is needed.
	resets bool
}

var legal = map[string][]string{"NPS1": {"SPX", "DPX", "QPX", "CPX"}, "NPS4": {"QPX", "CPX"}}

func newGPU(address string) *fakeGPU {
	c := &fakeGPU{GPU: gpu.GPU{PCIAddress: address, Vendor: gpu.NVIDIA}}
	cuts := append(ones(address, 6, 5, 4, 3, 2, 1, 0), three(address, 4), three(address, 0))
	switch address {
	case hopper, other:
		c.modes = gpu.Modes{MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff}
		c.Placements = slices.Concat(cuts, []gpu.Placement{wholeOf(address)})
	case ampere:
		c.modes = gpu.Modes{MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff, MIGNeedsReset: true}
		c.Placements = []gpu.Placement{wholeOf(address)}
		c.OtherMIG = &gpu.Offer{Placements: cuts}
	case plain:
		c.Placements = []gpu.Placement{wholeOf(address)}
	case mi210:
		c.Vendor, c.Placements = gpu.AMD, []gpu.Placement{wholeOf(address)}
	default:
		c.Vendor = gpu.AMD
		c.Modes = legal
		c.modes = gpu.Modes{Compute: "SPX", Computes: legal["NPS1"], Memory: "NPS1", Memories: []string{"NPS1", "NPS4"}, Legal: legal}
		for i := range 8 {
			c.Placements = append(c.Placements, xcp(address, "cpx", i))
		}
		c.Placements = append(c.Placements, xcp(address, "dpx", 0), xcp(address, "dpx", 1), xcp(address, "spx", 0))
	}
	return c
}

// fakeHardware keeps GPUs in memory. before and after are called around the effect of
// each call that changes something, and make it fail.
type fakeHardware struct {
	hardware.Driver
	// mu protects the GPUs.
	mu    sync.Mutex
	gpus  []*fakeGPU
	calls []string

	before, after func(call string) error
	onModes       func(gpuID string) error
	// loses makes a request for a memory mode get lost.
	loses bool
}

func (h *fakeHardware) driver(string) (hardware.Driver, error) { return h, nil }

func (h *fakeHardware) RemovalCommand(p gpu.Partition) string { return "remove " + p.ID }

func (h *fakeHardware) gpu(address string) *fakeGPU {
	for _, c := range h.gpus {
		if c.PCIAddress == address {
			return c
		}
	}
	panic("no GPU " + address)
}

func (h *fakeHardware) snapshot() []gpu.GPU {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []gpu.GPU
	for _, c := range h.gpus {
		all = append(all, c.GPU)
	}
	return all
}

// changes runs the effect of a call between the hooks.
func (h *fakeHardware) changes(ctx context.Context, call string, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	h.calls = append(h.calls, call)
	h.mu.Unlock()
	if h.before != nil {
		if err := h.before(call); err != nil {
			return err
		}
	}
	h.mu.Lock()
	err := effect()
	h.mu.Unlock()
	if err == nil && h.after != nil {
		err = h.after(call)
	}
	return err
}

func (h *fakeHardware) Modes(_ context.Context, gpuID string) (gpu.Modes, error) {
	if h.onModes != nil {
		if err := h.onModes(gpuID); err != nil {
			return gpu.Modes{}, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gpu(gpuID).modes, nil
}

func (h *fakeHardware) Live(_ context.Context, gpuID string) ([]gpu.Partition, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.gpu(gpuID)
	live := slices.Clone(c.live)
	if c.modes.Compute != "" && c.modes.Compute != "SPX" {
		for i := range map[string]int{"DPX": 2, "QPX": 4, "CPX": 8}[c.modes.Compute] {
			live = append(live, partitionAt(xcp(gpuID, strings.ToLower(c.modes.Compute), i)))
		}
	}
	return live, nil
}

func (h *fakeHardware) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	part := partitionAt(p)
	return part, h.changes(ctx, "create "+p.Name(), func() error {
		c := h.gpu(p.GPU)
		for i, q := range c.live {
			if q.Is(p) {
				c.live[i].Complete = true
				return nil
			}
			if q.Overlaps(p) {
				return fmt.Errorf("the place is taken by %s", q.Name())
			}
		}
		if c.modes.MIG != gpu.MIGOn {
			return errors.New("MIG mode is off")
		}
		c.live = append(c.live, part)
		return nil
	})
}

func (h *fakeHardware) Destroy(ctx context.Context, p gpu.Placement) error {
	return h.changes(ctx, "destroy "+p.Name(), func() error {
		c := h.gpu(p.GPU)
		c.live = slices.DeleteFunc(c.live, func(q gpu.Partition) bool { return q.Is(p) })
		return nil
	})
}

func (h *fakeHardware) SetMIG(ctx context.Context, gpuID string, on, leavePending bool) error {
	want := gpu.MIGOff
	if on {
		want = gpu.MIGOn
	}
	return h.changes(ctx, fmt.Sprintf("mig %s %s", gpu.NameOf(gpuID), want), func() error {
		c := h.gpu(gpuID)
		if len(c.live) > 0 && !on {
			return fmt.Errorf("%w: it has partitions", gpu.ErrInUse)
		}
		if c.modes.MIG != want && c.modes.MIGNeedsReset && !c.resets {
			if leavePending {
				c.modes.PendingMIG = want
			}
			return fmt.Errorf("GPU %s: %w", gpu.NameOf(gpuID), gpu.ErrNeedsReset)
		}
		c.setMIG(want)
		return nil
	})
}

func (c *fakeGPU) setMIG(want gpu.MIGMode) {
	c.modes.MIG, c.modes.PendingMIG = want, want
	c.GPU = c.WithMIG(want)
}

func (h *fakeHardware) SetComputePartition(ctx context.Context, gpuID, mode string) error {
	return h.changes(ctx, fmt.Sprintf("compute %s %s", gpu.NameOf(gpuID), mode), func() error {
		c := h.gpu(gpuID)
		if !slices.Contains(c.modes.Computes, mode) {
			return fmt.Errorf("mode %s is not offered", mode)
		}
		c.modes.Compute = mode
		return nil
	})
}

func (h *fakeHardware) SetMemoryPartition(ctx context.Context, mode string) error {
	const vendor = gpu.AMD // the only one with memory modes
	return h.changes(ctx, fmt.Sprintf("memory %s %s", vendor, mode), func() error {
		for _, c := range h.gpus {
			if c.Vendor != vendor || c.modes.Memory == "" {
				continue
			}
			if h.loses {
				return gpu.ErrModeLost
			}
			c.setMemory(mode)
		}
		return nil
	})
}

// setMemory is what a load of the driver does.
func (c *fakeGPU) setMemory(mode string) {
	c.modes.Memory, c.modes.Computes = mode, legal[mode]
	c.modes.Compute = map[string]string{"NPS1": "SPX", "NPS4": "CPX"}[mode]
}

// reboot loses what a machine loses.
func (h *fakeHardware) reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.gpus {
		c.live = nil
		switch {
		case c.modes.Memory != "":
			c.setMemory("NPS1")
		case c.modes.MIGNeedsReset:
			c.setMIG(c.modes.PendingMIG)
		case c.modes.MIG != "":
			c.setMIG(gpu.MIGOff)
		}
	}
}

// state is what the GPUs are like, for comparison.
func (h *fakeHardware) state() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, c := range h.gpus {
		m := c.modes
		text := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", c.Name(), m.MIG, m.Compute, m.Memory)), " ")
		if m.PendingMIG != m.MIG {
			text += " pending " + string(m.PendingMIG)
		}
		var names []string
		for _, p := range c.live {
			names = append(names, p.Label())
		}
		slices.Sort(names)
		all = append(all, strings.TrimSpace(text+" "+strings.Join(names, " ")))
	}
	return all
}

// fakeClaims are claims in memory.
type fakeClaims struct {
	// mu protects records.
	mu      sync.Mutex
	records []ledger.Record
	why     sync.Map
	// onLock is called when GPUs are to be locked.
	onLock func()
}

func (c *fakeClaims) Exclusive(ctx context.Context, gpus []string, why string, do func([]ledger.Record) error) error {
	for _, gpuID := range gpus {
		c.why.Store(gpuID, why)
	}
	if c.onLock != nil {
		c.onLock()
	}
	return do(c.Held(gpus))
}

func (c *fakeClaims) Held(gpus []string) []ledger.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.records), func(r ledger.Record) bool {
		return !slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return slices.Contains(gpus, d.Placement.GPU) })
	})
}

// hold makes a claim hold placements.
func (c *fakeClaims) hold(name string, placements ...gpu.Placement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := ledger.Record{Claim: ledger.ClaimRef{Namespace: "team", Name: name}}
	for _, p := range placements {
		r.Devices = append(r.Devices, ledger.Device{Name: p.Name(), Placement: p})
	}
	c.records = append(c.records, r)
}

func (c *fakeClaims) release(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = slices.DeleteFunc(c.records, func(r ledger.Record) bool { return r.Claim.Name == name })
}
