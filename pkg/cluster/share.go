package cluster

import (
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Shares is the room on the shared devices of one kind that a GPU has.
type Shares struct {
	// Profile is that of the partition that is shared, empty for the whole GPU.
	Profile string
	By      gpu.Basis
	// Default is what a claim gets that names no amount.
	Default gpu.Amount
	// Most is what one claim can get of a device. Compute is 0 if nobody can ask for it.
	Most gpu.Amount
	// Left is what is left of the devices that claims hold, and of those that fit beside them if
	// no other kind is allocated.
	Left []gpu.Amount
}

// shares sums up the shared devices of a GPU, by kind.
func (p *Pool) shares() []Shares {
	kinds := map[string][]*Device{}
	for _, d := range p.Devices {
		if d.Shared() {
			kinds[d.Label] = append(kinds[d.Label], d)
		}
	}
	var out []Shares
	for _, label := range slices.Sorted(maps.Keys(kinds)) {
		of := kinds[label]
		slices.SortStableFunc(of, byPosition)
		s := Shares{Profile: of[0].Profile, By: of[0].ShareUnit}
		taken := maps.Clone(p.Taken)
		for _, d := range of {
			s.Default, s.Most = d.bounds()
			switch {
			case d.barred():
			case d.Held():
				s.Left = append(s.Left, amountOf(d.Left()))
			case len(p.Short(d, taken)) == 0:
				taken.Add(d.Consumes)
				s.Left = append(s.Left, amountOf(d.Left()))
			}
		}
		out = append(out, s)
	}
	return out
}

func byPosition(a, b *Device) int {
	return slices.Compare(a.positions[:min(1, len(a.positions))], b.positions[:min(1, len(b.positions))])
}

// bounds returns what a claim without amounts gets of a shared device, and what a claim can get.
func (d *Device) bounds() (byDefault, most gpu.Amount) {
	usual, largest := Amounts{}, Amounts{}
	for name, c := range d.Capacity {
		short := names.Unqualified(string(name))
		usual[short], largest[short] = c.Value, c.Value
		if c.RequestPolicy == nil {
			continue
		}
		if c.RequestPolicy.Default != nil {
			usual[short] = *c.RequestPolicy.Default
		}
		if r := c.RequestPolicy.ValidRange; r != nil && r.Max != nil && r.Max.Cmp(c.Value) < 0 {
			largest[short] = *r.Max
		}
	}
	return amountOf(usual), amountOf(largest)
}

func amountOf(q Amounts) gpu.Amount {
	memory, fraction, compute, clients := q[names.CapacityMemory], q[names.CapacityFraction], q[names.CapacityComputePercent], q[names.CapacityClients]
	return gpu.Amount{Memory: memory.Value(), Fraction: fraction.MilliValue(), Compute: compute.Value(), Clients: clients.Value()}
}

// With fills in what an amount does not name. ok is false if no device could give it.
func (s *Shares) With(a gpu.Amount) (full gpu.Amount, ok bool) {
	full, ok = a, true
	for _, n := range []struct {
		of                 *int64
		byDefault, largest int64
	}{
		{&full.Memory, s.Default.Memory, s.Most.Memory}, {&full.Fraction, s.Default.Fraction, s.Most.Fraction},
		{&full.Compute, s.Default.Compute, s.Most.Compute}, {&full.Clients, s.Default.Clients, s.Most.Clients},
	} {
		if *n.of == 0 {
			*n.of = n.byDefault
		}
		ok = ok && *n.of <= n.largest
	}
	return full, ok
}

// Room counts how many more claims get an amount.
func (s *Shares) Room(a gpu.Amount) int {
	a, ok := s.With(a)
	if !ok || a.Memory == 0 && a.Fraction == 0 {
		return 0
	}
	all := 0
	for _, left := range s.Left {
		n := int64(-1)
		for _, of := range [][2]int64{{left.Memory, a.Memory}, {left.Fraction, a.Fraction}, {left.Compute, a.Compute}, {left.Clients, a.Clients}} {
			if more := max(0, of[0]); of[1] > 0 && (n < 0 || more/of[1] < n) {
				n = more / of[1]
			}
		}
		all += int(max(0, n))
	}
	return all
}
