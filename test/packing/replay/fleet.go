package replay

import (
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/policy"
)

// placed is a fleet with a policy.
type placed struct {
	*fleet.Fleet
	placer     policy.Placer
	popularity []float64
}

func (p *placed) place(c *fleet.Claim) bool {
	at, found := p.placer(p.Fleet, c)
	if found {
		p.Hold(c, at)
	}
	return found
}

func (p *placed) release(c *fleet.Claim) { p.Release(c) }

func (p *placed) fits(released *fleet.Claim) uint { return p.Nodes[released.Place.Node].Fits }

func (p *placed) sample() Sample { return SampleOf(p.Fleet) }

func (p *placed) fragmented() float64 { return p.Fragmentation(p.popularity) }

func (p *placed) changes() int { return p.Changes }

// SampleOf is what a fleet holds.
func SampleOf(f *fleet.Fleet) Sample {
	return Sample{Used: float64(f.Used), UsedNodes: float64(f.UsedNodes), Held: f.Held}
}
