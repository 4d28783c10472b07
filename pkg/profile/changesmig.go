package profile

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// diffMIG computes the changes of MIG mode and partitions. A GPU without MIG does not change.
func (c *differ) diffMIG() {
	want := c.desiredMIG()
	if c.Modes.MIG == "" {
		if c.To.Partitioning == PartitioningStatic {
			c.refuse("does not support MIG, so it cannot have static partitions")
		}
		return
	}
	switched := want != "" && want != c.Modes.MIG
	if switched && c.Modes.MIGFixed {
		c.refuse("has MIG mode %s and would need it %s, which is not ours to change: it is a vGPU, whose mode belongs to the hypervisor", c.Modes.MIG, want)
		return
	}
	// exact: no other partitions may exist.
	exact := want == gpu.MIGOff || c.To.Partitioning == PartitioningStatic
	if switched {
		c.mustLeave(everything)
	} else if exact {
		c.mustLeave(func(p gpu.Placement) bool { return (p.Type == gpu.TypeMIG || want == gpu.MIGOn) && !c.inLayout(p) })
	}
	c.remove(exact)
	if switched || want != "" && c.Modes.PendingMIG != "" && c.Modes.PendingMIG != want {
		c.step(OpMIG, string(want))
	}
	if c.To.Partitioning != PartitioningStatic {
		return
	}
	for _, p := range c.To.Static {
		if !slices.ContainsFunc(c.Live, func(q gpu.Partition) bool { return q.Is(p) && q.Complete }) {
			c.stepAt(OpCreate, p)
		}
	}
	if !switched {
		c.stays = c.inLayout
	}
}

// desiredMIG returns the desired MIG mode; empty: claims decide, or it does not change.
//
// Hopper and later change the mode when a claim needs it. Ampere changes it only by a reset
// of the GPU, for which a profile must mention MIG: the GPU is then in MIG mode, unless the
// profile disables it. A profile that does not mention MIG leaves the mode as it was.
func (c *differ) desiredMIG() gpu.MIGMode {
	switch {
	case c.To.Partitioning == PartitioningOff:
		return gpu.MIGOff
	case c.To.Partitioning == PartitioningStatic:
		return gpu.MIGOn
	case !c.Modes.MIGNeedsReset:
		return ""
	case c.To.Named || c.To.NoWhole || c.To.Profiles != nil:
		return gpu.MIGOn
	}
	return c.Before.MIG
}

// remove adds the removal of partitions that the layout does not have: idle ones of
// Tranche, and if exact also those that claims still hold. Foreign partitions are never
// removed.
func (c *differ) remove(exact bool) {
	for _, q := range c.Live {
		p := q.Placement()
		if q.Type != gpu.TypeMIG || c.inLayout(p) {
			continue
		}
		held := c.Holds(q)
		switch {
		case held && !exact:
		case held, slices.ContainsFunc(c.Ours, q.Is):
			c.stepAt(OpDestroy, p)
		case exact:
			c.changes.Foreign = append(c.changes.Foreign, q)
		}
	}
}

func (c *differ) inLayout(p gpu.Placement) bool {
	return c.To.Partitioning == PartitioningStatic &&
		slices.ContainsFunc(c.To.Static, func(l gpu.Placement) bool { return l.Name() == p.Name() })
}
