package why

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// supply is what a node has for a choice.
type supply struct {
	demand.Choice
	what                         kind
	places, free, taken, tainted int
	// room is how many can be allocated at once now, most how many if none were held.
	room, most int64
	shared     bool // some of them can be allocated several times
	shareSupply
	holders []cluster.Holder
	taints  []string
	rules   []string
	// switchTo is the profile of the switch that has tainted devices, nil if none has.
	switchTo *string
	// profile is the applied profile of the node, if it restricts what GPUs offer.
	profile string
	// gpus counts the GPUs with such devices. inMode are those of them that claims keep in a mode
	// without any, nearest is the one of these with the fewest holders.
	gpus    int
	inMode  []InMode
	nearest *Nearest
}

// supplyOf counts the devices of a node for a choice.
func (c *world) supplyOf(ctx context.Context, node *corev1.Node, ch demand.Choice) (supply, error) {
	s := supply{Choice: ch}
	if !c.brief {
		s.what = c.what(ctx, ch)
	}
	if far := c.Progress(node.Name); far != nil && far.Restricts() {
		s.profile = far.Applied
	}
	used, empty := map[*cluster.Pool]gpu.Counters{}, map[*cluster.Pool]gpu.Counters{}
	modes := map[*cluster.Pool][]string{}
	for _, p := range c.Pools {
		if p.Incomplete() {
			continue // the scheduler does not use it
		}
		for _, d := range p.Devices {
			if !d.On(node) {
				continue
			}
			if ok, err := c.wanted(ctx, d, ch); err != nil || !ok {
				if err != nil {
					return s, err
				}
				continue
			}
			s.places++
			modes[p] = union(modes[p], d.Mode())
			if empty[p] == nil {
				empty[p] = gpu.Counters{}
			}
			if (len(p.Short(d, empty[p])) == 0 && couldGive(d, ch)) || ch.AdminAccess {
				s.most++
				empty[p].Add(d.Consumes)
			}
			if bad := untolerated(d, ch.Tolerations); len(bad) > 0 {
				s.tainted++
				s.addTaints(c.in.Rules, d, bad)
				continue
			}
			if ch.AdminAccess {
				s.free++
				s.room++
				continue
			}
			if used[p] == nil {
				used[p] = maps.Clone(p.Taken)
			}
			if d.Shared() {
				s.addShare(d, used[p])
				continue
			}
			if d.Held() || len(p.Short(d, p.Taken)) > 0 {
				s.taken++
				s.addHolders(c, d)
				continue
			}
			s.free++
			if len(p.Short(d, used[p])) == 0 {
				s.room++
				used[p].Add(d.Consumes)
			}
		}
	}
	if !ch.AdminAccess {
		s.addModes(c, modes)
	}
	return s, nil
}

// addHolders adds who keeps a device from being allocated.
func (s *supply) addHolders(c *world, d *cluster.Device) {
	if !c.brief {
		s.holders = append(s.holders, d.Pool.InTheWay(d)...)
	}
}

func (c *world) wanted(ctx context.Context, d *cluster.Device, ch demand.Choice) (bool, error) {
	class := c.DeviceClasses[ch.Class]
	if class == nil {
		return false, nil
	}
	if ok, err := c.matches(ctx, d, class.Spec.Selectors); err != nil || !ok {
		return false, err
	}
	return c.matches(ctx, d, ch.Selectors)
}

// untolerated lists the taints of a device that are not tolerated.
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
		if t.Key == names.TaintRepartitioning {
			s.switchTo = &t.Value
		}
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		text += ":" + string(t.Effect)
		if by := cluster.RulesBehind(rules, d, t); len(by) > 0 {
			text += " (DeviceTaintRule " + strings.Join(by, ", ") + ")"
			s.rules = union(s.rules, by...)
		}
		s.taints = union(s.taints, text)
	}
}

func union(all []string, more ...string) []string {
	for _, m := range more {
		if !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// profileInText finds the profile in the selector of a class, for profiles that no node has:
// "1g.10gb", or "tpx".
var profileInText = regexp.MustCompile(`"(\d+g\.\d+gb[^"]*|[a-z]px)"`)

// shareInText finds the unit of shares in the selector of a class, for shares that no node has.
var shareInText = regexp.MustCompile(`\?share\.orValue\(""\) == "(\w+)"`)

// kind is the kind of device that a choice requests, in words.
type kind struct {
	text string
	// share and whole: it is a share, or a whole GPU. byClass: only its class is known.
	share, whole, byClass bool
}

func (k kind) String() string { return k.text }

// what is the kind of a choice: the profile if there is only one, otherwise the class.
func (c *world) what(ctx context.Context, ch demand.Choice) kind {
	var found []kind
	for _, p := range c.Pools {
		for _, d := range p.Devices {
			if ok, err := c.wanted(ctx, d, ch); err == nil && ok && p.GPU != "" {
				k := kind{text: d.Label, share: d.Type == gpu.TypeShare, whole: d.Type == gpu.TypeGPU}
				if !slices.Contains(found, k) {
					found = append(found, k)
				}
			}
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	if class := c.DeviceClasses[ch.Class]; class != nil && len(found) == 0 {
		for _, s := range class.Spec.Selectors {
			if s.CEL != nil {
				if m := profileInText.FindStringSubmatch(s.CEL.Expression); m != nil {
					return kind{text: m[1]}
				}
				if m := shareInText.FindStringSubmatch(s.CEL.Expression); m != nil {
					return kind{text: m[1] + cluster.ShareSuffix, share: true}
				}
			}
		}
	}
	return kind{text: "device of class " + ch.Class, byClass: true}
}

// verdict is the verdict for a choice alone.
func (s supply) verdict() Verdict {
	switch {
	case s.places == 0, s.places == s.unfit, !s.All && s.Count > s.most:
		return Lacking
	case s.free == 0 && s.taken == 0:
		return Tainted
	case s.free == 0 || (!s.All && s.room < s.Count) || (s.All && s.room < int64(s.places)):
		return Full
	}
	return Fits
}

// hopeless tells whether a node certainly cannot satisfy the choice.
func (s supply) hopeless() bool {
	return s.places == 0 || s.free == 0 || s.unfit == s.places || (!s.shared && !s.All && int64(s.free) < s.Count)
}

// sentence describes the supply. verdict is that of the allocator, if it differs.
func (s supply) sentence(verdict Verdict, offers []string) string {
	if text := s.shareSentence(verdict, offers); text != "" {
		return text
	}
	every := func(state string) string {
		if s.places == 1 {
			return fmt.Sprintf("the only %s is %s", s.noun(1), state)
		}
		return fmt.Sprintf("all %d %s are %s", s.places, s.noun(s.places), state)
	}
	counts := func() string { return fmt.Sprintf("of %d %s, %s", s.places, s.noun(s.places), s.states()) }
	switch {
	case s.places == 0 && s.profile != "" && len(offers) == 0:
		return fmt.Sprintf("the node follows profile %s, which offers no %s.", s.profile, s.what)
	case s.places == 0 && s.profile != "":
		return fmt.Sprintf("the node follows profile %s, which offers no %s; its GPUs have %s.", s.profile, s.what, strings.Join(offers, ", "))
	case s.places == 0 && len(offers) == 0:
		return fmt.Sprintf("there is no %s here.", s.what)
	case s.places == 0 && len(offers) == 1 && offers[0] == cluster.WholeGPU:
		return fmt.Sprintf("there is no %s here; its GPUs can only be had whole.", s.what)
	case s.places == 0:
		return fmt.Sprintf("there is no %s here; its GPUs have %s.", s.what, strings.Join(offers, ", "))
	case verdict == Lacking:
		return fmt.Sprintf("it asks for %d × %s at once, and the node has only %d in total.", s.Count, s.what, s.most)
	case verdict == Fits && s.free == s.places:
		return every("free") + "."
	case verdict == Tainted:
		return every("tainted") + "."
	case s.All && verdict != Fits:
		return fmt.Sprintf("it asks for every one at once, and so many cannot be had together: %s.", counts())
	case s.free == 0 && s.tainted == 0:
		return every("taken") + "."
	case s.free == 0:
		return counts() + "."
	case verdict == Full && s.room < s.Count:
		return fmt.Sprintf("it asks for %d × %s, and there is room for %d at once: %s.", s.Count, s.what, s.room, counts())
	case verdict == Full:
		return "the scheduler's allocator finds no way to give it: " + counts() + "."
	}
	return counts() + "."
}

// noun is what is counted.
func (s supply) noun(n int) string {
	plural := "s"
	if n == 1 {
		plural = ""
	}
	switch {
	case s.what.byClass:
		return "device" + plural + " of class " + s.Class
	case s.what.whole:
		return s.what.text + plural
	}
	return fmt.Sprintf("place%s for %s", plural, s.what)
}

// states says how many are taken, tainted and free: "13 are taken, 2 tainted and
// 1 free".
func (s supply) states() string {
	var parts []string
	for _, p := range []struct {
		n     int
		state string
	}{{s.taken, "taken"}, {s.tainted, "tainted"}, {s.free, "free"}} {
		verb := ""
		switch {
		case p.n == 0:
			continue
		case len(parts) > 0:
		case p.n == 1:
			verb = "is "
		default:
			verb = "are "
		}
		parts = append(parts, fmt.Sprintf("%d %s%s", p.n, verb, p.state))
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// maxNames is how many holders are named.
const maxNames = 4

// names lists the pods of holders by namespace, shortened.
func namesOf(holders []cluster.Holder) []string {
	byNamespace := map[string][]string{}
	for _, h := range holders {
		if len(h.Pods) == 0 {
			byNamespace[h.Namespace] = union(byNamespace[h.Namespace], "claim "+h.Claim+" without a pod")
		}
		byNamespace[h.Namespace] = union(byNamespace[h.Namespace], h.Pods...)
	}
	var out []string
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		all := byNamespace[namespace]
		slices.Sort(all)
		out = append(out, namespace+": "+text.List(all, maxNames))
	}
	if more := len(out) - maxNames; more > 0 {
		out = append(out[:maxNames], fmt.Sprintf("%d more namespaces", more))
	}
	return out
}
