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
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/byhand"
)

// The GPUs of these tests.
const (
	hopper, other, ampere, plain = byhand.Hopper, byhand.Other, byhand.Ampere, byhand.Plain
	mi300, mi300b, mi210         = byhand.MI300, byhand.MI300b, byhand.MI210
)

var ones, three, wholeOf, xcp, shareOf, partitionAt, partitions = byhand.Ones, byhand.Three, byhand.Whole, byhand.XCP, byhand.Share, byhand.Partition, byhand.Partitions

func static(placements ...gpu.Placement) profile.Layout {
	return profile.Layout{Partitioning: profile.PartitioningStatic, Static: placements}
}

var (
	off   = profile.Layout{Partitioning: profile.PartitioningOff}
	named = profile.Layout{Named: true}
)

func deviceNames(placements ...gpu.Placement) []string {
	return lists.Map(placements, gpu.Placement.Name)
}

// fakeGPU is a GPU in memory.
type fakeGPU struct {
	gpu.GPU
	modes gpu.Modes
	live  []gpu.Partition
	// resets reports whether a reset succeeds where one is needed.
	resets bool
}

func newGPU(address string) *fakeGPU {
	g, modes := byhand.GPU(address)
	return &fakeGPU{GPU: g, modes: modes}
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
	// onModes and onLive are called when a GPU is read.
	onModes, onLive func(gpuID string) error
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
	if h.onLive != nil {
		if err := h.onLive(gpuID); err != nil {
			return nil, err
		}
	}
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
func (c *fakeGPU) setMemory(mode string) { c.modes = byhand.InMemoryMode(c.modes, mode) }

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
