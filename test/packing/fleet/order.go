package fleet

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/test/packing/workload"
)

// Order has the starts of each kind of partition in the order in which they are published.
type Order [workload.WholeGPU][]int

// Order is that of the layout.
func (l *Layout) Order() (o Order) {
	for k := range o {
		for _, p := range l.GPU.Placements {
			if isKind(p, workload.Kinds[k]) {
				o[k] = append(o[k], p.Start)
			}
		}
	}
	return o
}

// Swapped is the order with two starts of a kind exchanged.
func (o Order) Swapped(kind, i, j int) Order {
	o[kind] = slices.Clone(o[kind])
	o[kind][i], o[kind][j] = o[kind][j], o[kind][i]
	return o
}

// String is such as "1g.10gb 6 5 4, 3g.40gb 4 0".
func (o Order) String() (text string) {
	for k, starts := range o {
		if text != "" {
			text += ", "
		}
		text += workload.Kinds[k].String()
		for _, start := range starts {
			text += fmt.Sprintf(" %d", start)
		}
	}
	return text
}

// WithOrder is the layout of a GPU whose partitions are published in another order: the allocator
// takes the first that fits.
func (l *Layout) WithOrder(o Order) *Layout {
	other := &Layout{GPU: l.GPU, byHeld: map[uint64]*State{}}
	for held, s := range l.byHeld {
		other.byHeld[held] = &State{Held: held, Free: s.Free, First: s.First, Devices: s.Devices, After: make([]*State, len(s.After))}
		for k, starts := range o {
			first := slices.IndexFunc(starts, func(start int) bool { return l.at(s.Devices[k], start) >= 0 })
			if first >= 0 {
				other.byHeld[held].First[k] = l.at(s.Devices[k], starts[first])
			}
		}
	}
	for held, s := range l.byHeld {
		for d, after := range s.After {
			if after != nil {
				other.byHeld[held].After[d] = other.byHeld[after.Held]
			}
		}
	}
	other.Empty = other.byHeld[0]
	return other
}

// at is the one of some devices that begins at a start, -1 if there is none.
func (l *Layout) at(devices []int, start int) int {
	i := slices.IndexFunc(devices, func(d int) bool { return l.GPU.Placements[d].Start == start })
	if i < 0 {
		return -1
	}
	return devices[i]
}
