package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// shareSupply counts the shared devices of a node.
type shareSupply struct {
	// unfit counts the devices that could not satisfy the request even if they were free, for
	// the reasons in why.
	unfit int
	why   []string
	// excluded counts the devices whose GPU is held whole, by partitions, or by shares of another
	// unit; short those with too little left, of the capacities in shortOf.
	excluded, short int
	shortOf         []string
	// left is the largest amount that is left of a short device, by capacity.
	left map[string]resource.Quantity
}

// asked is how much of each capacity a claim would get: what it requests, or the default. missing are
// the names of requested capacities that the device does not have.
func asked(d *cluster.Device, ch demand.Choice) (amounts map[string]resource.Quantity, missing []string) {
	for name := range ch.Amounts {
		if _, ok := d.Capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	slices.Sort(missing)
	amounts = map[string]resource.Quantity{}
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

// couldGive tells whether a device could be allocated if it were free.
func couldGive(d *cluster.Device, ch demand.Choice) bool { return !d.Shared() || unfitFor(d, ch) == "" }

// enough tells whether amounts are available.
func enough(amounts, have map[string]resource.Quantity) bool {
	for name, n := range amounts {
		if n.Cmp(have[name]) > 0 {
			return false
		}
	}
	return true
}

// unfitFor says why a shared device can never satisfy a choice, empty if it can.
func unfitFor(d *cluster.Device, ch demand.Choice) string {
	amounts, missing := asked(d, ch)
	switch {
	case slices.Contains(missing, "compute"):
		return "it asks for compute, and shares have that only where MPS limits them: on NVIDIA's GPUs, on nodes where MPS works"
	case len(missing) > 0:
		return fmt.Sprintf("it asks for %s, which such a share does not have", strings.Join(missing, " and "))
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		n, capacity := amounts[name], d.Capacity[resourceapi.QualifiedName(name)]
		if policy := capacity.RequestPolicy; policy != nil && policy.ValidRange != nil && policy.ValidRange.Max != nil && n.Cmp(*policy.ValidRange.Max) > 0 {
			return fmt.Sprintf("it asks for %s, and the node's settings allow %s for a share", amount(name, n), amount(name, *policy.ValidRange.Max))
		}
		if n.Cmp(capacity.Value) > 0 {
			return fmt.Sprintf("it asks for %s, and a device has %s for all its shares", amount(name, n), amount(name, capacity.Value))
		}
	}
	return ""
}

// amount describes an amount in words.
func amount(name string, q resource.Quantity) string {
	return strings.Join(cluster.Amounts(map[string]string{name: q.String()}, true), ", ")
}

// addShare counts a shared device without taints. used are the counters of its pool that are taken,
// also by devices that were counted before.
func (s *supply) addShare(d *cluster.Device, used gpu.Counters) {
	s.shared = true
	if why := unfitFor(d, s.Choice); why != "" {
		s.unfit++
		s.why = union(s.why, why)
		return
	}
	amounts, _ := asked(d, s.Choice)
	left := d.Left()
	held := d.Held()
	switch {
	case !held && len(d.Pool.Short(d, d.Pool.Taken)) > 0:
		s.taken++
		s.excluded++
		s.holders = append(s.holders, d.Pool.InTheWay(d)...)
	case !enough(amounts, left):
		s.taken++
		s.addShort(amounts, left)
		s.holders = append(s.holders, d.Holders...)
	default:
		s.free++
		// A request gets one share of a device at most.
		if held || len(d.Pool.Short(d, used)) == 0 {
			s.room++
		}
		if !held {
			used.Add(d.Consumes)
		}
	}
}

// addShort records the capacities of which a device has too little left.
func (s *supply) addShort(amounts, left map[string]resource.Quantity) {
	s.short++
	if s.left == nil {
		s.left = map[string]resource.Quantity{}
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		n, rest := amounts[name], left[name]
		if n.Cmp(rest) <= 0 {
			continue
		}
		s.shortOf = union(s.shortOf, name)
		if most, ok := s.left[name]; !ok || rest.Cmp(most) > 0 {
			s.left[name] = rest
		}
	}
}

// shareSentence describes the shared devices of a node, empty if the usual sentence applies.
func (s supply) shareSentence(verdict Verdict, offers []string) string {
	switch {
	case s.places == 0 && s.what.share && slices.Contains(offers, s.what.text):
		return "it has " + s.what.text + "s, and none that the claim's class and selectors choose (shares of whole GPUs and of partitions have classes of their own)."
	case s.places == 0 && s.what.share:
		text := "no " + s.what.text + " is published here: the node's settings share no such GPU, or the API server drops what shares need (feature gate DRAConsumableCapacity); the node's events tell."
		if len(offers) > 0 {
			text += " Its GPUs have " + strings.Join(offers, ", ") + "."
		}
		return text
	case !s.shared || s.places == 0:
		return ""
	case s.unfit == s.places:
		return strings.Join(s.why, "; ") + "."
	case verdict != Full || s.All:
		return ""
	}
	var parts []string
	say := func(n int, one, many string) {
		switch {
		case n == 1 && s.places == 1:
			parts = append(parts, "its only shared device "+one)
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	say(s.excluded, "is on a GPU that is held whole, in pieces or by shares of another kind", "are on GPUs that are held whole, in pieces or by shares of another kind")
	if s.short > 0 {
		var rest []string
		for _, name := range s.shortOf {
			rest = append(rest, amount(name, s.left[name]))
		}
		say(s.short, "has too little left: "+strings.Join(rest, ", "), "have too little left, at most "+strings.Join(rest, ", "))
	}
	say(s.unfit, "could never give it: "+strings.Join(s.why, "; "), "could never give it: "+strings.Join(s.why, "; "))
	say(s.tainted, "is tainted", "are tainted")
	if s.free > 0 {
		say(s.free, "has room, though not for all at once", "have room, though not for all at once")
	}
	if s.places == 1 {
		return strings.Join(parts, "; ") + "."
	}
	return fmt.Sprintf("of %d shared devices, %s.", s.places, strings.Join(parts, "; "))
}
