package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// asked returns how much of each capacity a claim would get: the requested amount, or the default.
// missing are the names of requested capacities that the device does not have.
func asked(d *cluster.Device, ch demand.Choice) (amounts cluster.Amounts, missing []string) {
	for name := range ch.Amounts {
		if _, ok := d.Capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	slices.Sort(missing)
	amounts = cluster.Amounts{}
	for name, c := range d.Capacity {
		n := c.Value
		if c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
			n = *c.RequestPolicy.Default
		}
		if q, ok := ch.Amounts[name]; ok {
			n = q
		}
		amounts[string(name)] = n
	}
	return amounts, missing
}

// limit is why a shared device can never satisfy a choice, with the most that it has of an amount.
type limit struct {
	text string
	most resource.Quantity
}

// unfitFor explains why a shared device can never satisfy a choice. The text is empty if it can.
func unfitFor(d *cluster.Device, ch demand.Choice) limit {
	amounts, missing := asked(d, ch)
	switch {
	case slices.Contains(missing, names.CapacityComputePercent):
		return limit{text: "it asks for compute, and shares have that only where MPS limits them: on NVIDIA's GPUs, on nodes where MPS works"}
	case len(missing) > 0:
		return limit{text: fmt.Sprintf("it asks for %s, which such a share does not have", strings.Join(missing, " and "))}
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		n, capacity := amounts[name], d.Capacity[resourceapi.QualifiedName(name)]
		if policy := capacity.RequestPolicy; policy != nil && policy.ValidRange != nil && policy.ValidRange.Max != nil && n.Cmp(*policy.ValidRange.Max) > 0 {
			return limit{fmt.Sprintf("it asks for %s, and the node's settings allow %s for a share", amount(name, n), amount(name, *policy.ValidRange.Max)), *policy.ValidRange.Max}
		}
		if n.Cmp(capacity.Value) > 0 {
			return limit{fmt.Sprintf("it asks for %s, and a device has %s for all its shares", amount(name, n), amount(name, capacity.Value)), capacity.Value}
		}
	}
	return limit{}
}

// amount describes an amount in words.
func amount(name string, q resource.Quantity) string {
	return strings.Join(cluster.Amounts{name: q}.Texts(true), ", ")
}

// addShare counts a shared device without taints.
func (s *supply) addShare(d *cluster.Device) {
	s.shared = true
	if why := unfitFor(d, s.Choice); why.text != "" {
		s.unfit++
		s.unfitFor = lists.Union(s.unfitFor, why.text)
		if s.limit.text == "" || why.most.Cmp(s.limit.most) > 0 {
			s.limit = why
		}
		return
	}
	amounts, _ := asked(d, s.Choice)
	held, short := d.Held(), s.addLeft(amounts, d.Left())
	switch {
	case !held && len(d.Pool.Short(d, d.Pool.Taken)) > 0:
		s.taken++
		s.otherwise++
		s.take(d, d.Pool.InTheWay(d))
	case short:
		s.taken++
		s.short++
		s.take(d, d.Holders)
	default:
		s.free++
	}
}

// addLeft records the capacities of which too little is left, and reports whether there are any.
func (s *supply) addLeft(amounts, left cluster.Amounts) (short bool) {
	for name, n := range amounts {
		rest := left[name]
		if n.Cmp(rest) <= 0 {
			continue
		}
		short = true
		if most, ok := s.left[name]; !ok || rest.Cmp(most) > 0 {
			s.left[name] = rest
		}
	}
	return short
}

func (s *supply) leftText() string {
	return strings.Join(lists.Map(slices.Sorted(maps.Keys(s.left)), func(name string) string { return amount(name, s.left[name]) }), ", ")
}
