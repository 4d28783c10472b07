package fit

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

type supply struct {
	demand.Choice
	// places is the number of matching devices. free, taken and tainted are parts of it, as is unfit,
	// the number of shared devices that can never satisfy the choice.
	places, free, taken, tainted, unfit int
	// most is the number of devices that could be allocated at once if none were held.
	most   int64
	shared bool // some devices can be allocated several times
	// otherwise is the number of taken shares of GPUs that are held in another way, short the number of
	// those with too little left. left is the largest rest of each capacity.
	otherwise, short int
	left             map[string]resource.Quantity
	unfitFor         []string
	limit            limit
	holders          []cluster.Holder
	// passed is the largest number of selectors that a device passes, and nearly are the devices that pass
	// so many.
	passed int
	nearly []*cluster.Device
	// ways are the taken devices.
	ways   []way
	taints []cluster.Taint
	// switchTo is the profile of the switch that has tainted devices, if any.
	switchTo *string
	// gpus is the number of GPUs with such devices. inMode counts those that claims keep in a mode without
	// them.
	gpus   int
	inMode []InMode
}

// supplyOf counts the devices of a node for a choice. If enough is true, it stops when the node does not
// lack them.
func (m *Model) supplyOf(ctx context.Context, node *corev1.Node, ch demand.Choice, enough bool) (*supply, error) {
	s := &supply{Choice: ch, left: map[string]resource.Quantity{}}
	modes := map[*cluster.Pool][]string{}
	for _, p := range m.Pools {
		if p.Incomplete() {
			continue // the scheduler does not use it
		}
		empty := gpu.Counters{}
		for _, d := range p.Devices {
			if !d.On(node) {
				continue
			}
			passed, ok, err := m.passes(ctx, d, ch)
			if err != nil {
				return s, err
			}
			s.compare(d, passed)
			if !ok {
				continue
			}
			modes[p] = lists.Union(modes[p], d.Mode())
			m.count(s, d, empty)
			if enough && s.verdict(false) != Lacking {
				return s, nil
			}
		}
	}
	if !ch.AdminAccess {
		s.addModes(m, modes)
	}
	return s, nil
}

// compare notes a device that passes so many selectors.
func (s *supply) compare(d *cluster.Device, passed int) {
	if passed > s.passed {
		s.passed, s.nearly = passed, nil
	}
	if passed == s.passed && passed > 0 {
		s.nearly = append(s.nearly, d)
	}
}

// count counts a device. empty are the counters that the devices before it would consume of an empty
// pool.
func (m *Model) count(s *supply, d *cluster.Device, empty gpu.Counters) {
	s.places++
	fitsEmpty := len(d.Pool.Short(d, empty)) == 0 && (!d.Shared() || unfitFor(d, s.Choice).text == "")
	if fitsEmpty || s.AdminAccess {
		s.most++
		empty.Add(d.Consumes)
	}
	bad := untolerated(d, s.Tolerations)
	switch {
	case len(bad) > 0:
		s.tainted++
		s.addTaints(m.objects.Rules, d, bad)
	case s.AdminAccess:
		s.free++
	case d.Shared():
		s.addShare(d)
	case d.Held() || len(d.Pool.Short(d, d.Pool.Taken)) > 0:
		s.taken++
		if !m.brief {
			s.take(d, d.Pool.InTheWay(d))
		}
	default:
		s.free++
	}
}

// take notes the holders that keep a device from being allocated.
func (s *supply) take(d *cluster.Device, holders []cluster.Holder) {
	s.holders = append(s.holders, holders...)
	s.ways = append(s.ways, way{devices: []string{d.Name}, holders: cluster.AddHolders(nil, holders...)})
}

// untolerated returns the taints of a device that are not tolerated.
func untolerated(d *cluster.Device, tolerations []resourceapi.DeviceToleration) []resourceapi.DeviceTaint {
	return slices.DeleteFunc(slices.Clone(d.Taints), func(t resourceapi.DeviceTaint) bool {
		if t.Effect != resourceapi.DeviceTaintEffectNoSchedule && t.Effect != resourceapi.DeviceTaintEffectNoExecute {
			return true
		}
		return slices.ContainsFunc(tolerations, func(o resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(o, t) })
	})
}

func (s *supply) addTaints(rules []resourceapi.DeviceTaintRule, d *cluster.Device, taints []resourceapi.DeviceTaint) {
	for _, t := range taints {
		if t.Key == names.TaintSwitching {
			s.switchTo = &t.Value
		}
		s.taints = addTaints(s.taints, cluster.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, Rules: cluster.RulesBehind(rules, d, t)})
	}
}

// addTaints adds taints, each once.
func addTaints(all []cluster.Taint, more ...cluster.Taint) []cluster.Taint {
	return lists.UnionFunc(all, func(a, b cluster.Taint) bool { return reflect.DeepEqual(a, b) }, more...)
}

// TaintTexts returns taints with the rules that set them.
func TaintTexts(taints []cluster.Taint) (out []string) {
	for _, t := range taints {
		text := t.String()
		if len(t.Rules) > 0 {
			text += " (DeviceTaintRule " + strings.Join(t.Rules, ", ") + ")"
		}
		out = append(out, text)
	}
	return out
}

// verdict returns the verdict for a choice alone. fits is the result of the allocator.
func (s *supply) verdict(fits bool) Verdict {
	switch {
	case fits:
		return Fits
	case s.places == 0, s.places == s.unfit, !s.All && s.Count > s.most:
		return Lacking
	case s.free == 0 && s.taken == 0:
		return Tainted
	}
	return Full
}

// hopeless reports whether a node cannot satisfy the choice, without the allocator.
func (s *supply) hopeless() bool {
	return s.places == 0 || s.free == 0 || s.unfit == s.places || (!s.shared && !s.All && int64(s.free) < s.Count)
}

// supplyText describes a node's devices for a choice: "0 of 14 devices free: 12 taken, 2 tainted".
func (m *Model) supplyText(node *corev1.Node, s *supply, verdict Verdict) string {
	switch {
	case m.brief:
		return ""
	case s.places == 0 && s.passed > 0:
		return m.lack(node, s).String()
	case s.places == 0:
		return m.lackText(node, s)
	case s.noneFits():
		return strings.Join(s.unfitFor, "; ")
	case verdict == Lacking:
		return fmt.Sprintf("it asks for %d devices at once, and the node has %d in total", s.Count, s.most)
	}
	out := fmt.Sprintf("%d of %d devices free", s.free, s.places)
	var parts []string
	add := func(n int, state string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	add(s.taken-s.otherwise-s.short, "taken")
	add(s.otherwise, "on a GPU that is held whole, in pieces or by shares of another kind")
	add(s.short, "with too little left (at most "+s.leftText()+")")
	add(s.unfit, "that can never satisfy it ("+strings.Join(s.unfitFor, "; ")+")")
	add(s.tainted, "tainted")
	if len(parts) > 0 {
		out += ": " + strings.Join(parts, ", ")
	}
	if verdict == Full {
		out += s.modeText()
	}
	return out
}

// noneFits reports whether no shared device could ever satisfy the choice, and unfitFor says why.
func (s *supply) noneFits() bool {
	return s.places == s.unfit || s.most == 0 && len(s.unfitFor) > 0
}

// shareClass ends the names of the chart's DeviceClasses for shares.
const shareClass = "-share.tranche.dev"

// lackText describes what a node has instead of the requested device.
func (m *Model) lackText(node *corev1.Node, s *supply) string {
	share := len(s.Amounts) > 0 || strings.HasSuffix(s.Class, shareClass)
	out, offers := "no such device here", m.offers(node, share)
	far := m.Progress(node.Name)
	switch {
	case share && len(offers) > len(m.offers(node, false)):
		out = "no such share here"
	case share:
		out = "no such share here: the node's settings share no such GPU, or the API server drops what shares need (feature gate DRAConsumableCapacity); see the node's events"
	case far != nil && far.Restricts():
		out = "the node follows profile " + far.Applied.ProfileName + ", which offers no such device"
	}
	if len(offers) > 0 {
		out += "; its GPUs have " + strings.Join(offers, ", ")
	}
	return out
}

// maxNames is the maximum number of holders to name.
const maxNames = 4

// NamesOf returns the pods of holders by namespace, truncated: "team-a: train-0, train-1".
func NamesOf(holders []cluster.Holder) []string {
	byNamespace := map[string][]string{}
	for _, h := range holders {
		consumers := h.Consumers()
		if len(consumers) == 0 {
			consumers = []string{"claim " + h.Claim + " without a pod"}
		}
		byNamespace[h.Namespace] = lists.Union(byNamespace[h.Namespace], consumers...)
	}
	var out []string
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		all := byNamespace[namespace]
		slices.Sort(all)
		out = append(out, namespace+": "+text.List(all, maxNames))
	}
	if more := len(out) - maxNames; more > 0 {
		out = append(out[:maxNames], text.Count(more, "more namespace"))
	}
	return out
}
