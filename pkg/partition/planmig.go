package partition

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// planMIG plans for a GPU that MIG may partition. One without MIG keeps what it has.
func (c *planner) planMIG() {
	want := c.migWanted()
	if c.Modes.MIG == "" {
		if c.To.Cut == profile.CutStatic {
			c.refuse("knows no MIG, so it cannot be cut into partitions that stay")
		}
		return
	}
	switched := want != "" && want != c.Modes.MIG
	if switched && c.Modes.MIGFixed {
		c.refuse("has MIG mode %s and would need it %s, which is not ours to change: it is a vGPU, whose mode belongs to the hypervisor", c.Modes.MIG, want)
		return
	}
	// exact: what is not wanted must not be there.
	exact := want == gpu.MIGOff || c.To.Cut == profile.CutStatic
	if switched {
		c.mustLeave(everything)
	} else if exact {
		c.mustLeave(func(p gpu.Placement) bool { return (p.Type == gpu.TypeMIG || want == gpu.MIGOn) && !c.inLayout(p) })
	}
	c.remove(exact)
	if switched || want != "" && c.Modes.PendingMIG != "" && c.Modes.PendingMIG != want {
		c.step(OpMIG, string(want))
	}
	if c.To.Cut != profile.CutStatic {
		return
	}
	for _, p := range c.To.Layout {
		if !slices.ContainsFunc(c.Live, func(q gpu.Partition) bool { return q.Is(p) && q.Complete }) {
			c.stepAt(OpCreate, p)
		}
	}
	if !switched {
		c.stays = c.inLayout
	}
}

// migWanted is the MIG mode that the GPU must be in, empty: claims decide, or it
// stays as it is.
//
// Hopper and later change the mode when a claim needs it. Ampere does so by a reset of
// the GPU, which takes a profile: one that speaks of MIG, since without partitions to
// ask for it would say nothing on these GPUs; those who want whole GPUs say so by
// mode Off. A profile that does not speak of it leaves the mode as it was found.
func (c *planner) migWanted() gpu.MIGMode {
	switch {
	case c.To.Cut == profile.CutOff:
		return gpu.MIGOff
	case c.To.Cut == profile.CutStatic:
		return gpu.MIGOn
	case !c.Modes.MIGNeedsReset:
		return ""
	case c.To.Named || c.To.NoWhole || c.To.Profiles != nil:
		return gpu.MIGOn
	}
	return c.Before.MIG
}

// remove takes away what stands where the shape does not have it: what is ours and
// idle, always; and where nothing else may be there, what claims held until then.
// What somebody else made is never touched.
func (c *planner) remove(exact bool) {
	for _, q := range c.Live {
		p := placementOf(q)
		if q.Type != gpu.TypeMIG || c.inLayout(p) {
			continue
		}
		held := c.holds(q)
		switch {
		case held && !exact:
		case held, slices.ContainsFunc(c.Ours, q.Is):
			c.stepAt(OpDestroy, p)
		case exact:
			c.plan.Foreign = append(c.plan.Foreign, q)
		}
	}
}

// placementOf is where a partition is.
func placementOf(q gpu.Partition) gpu.Placement {
	return gpu.Placement{GPU: q.GPU, Type: q.Type, Profile: q.Profile, Start: q.Start, Size: q.Size}
}

// inLayout tells whether the shape has the placement as a partition that stays.
func (c *planner) inLayout(p gpu.Placement) bool {
	return c.To.Cut == profile.CutStatic &&
		slices.ContainsFunc(c.To.Layout, func(l gpu.Placement) bool { return l.Name() == p.Name() })
}
