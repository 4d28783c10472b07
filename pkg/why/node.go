package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// node explains one node.
func (c *world) node(ctx context.Context, node *corev1.Node, drawn cluster.Node, d demand.Demand) Node {
	n := Node{Name: node.Name, GPUs: products(drawn), Verdict: Fits}
	if !c.in.Partial {
		for _, f := range drawn.Free() {
			n.Free = append(n.Free, fmt.Sprintf("%s ×%d", f.Label, f.Count))
		}
	}
	if c.exclude(&n, node, d); len(n.Reasons) > 0 {
		n.Verdict = Excluded
	}
	if c.brief && n.barred {
		return n
	}
	devices, withheld, unusable := c.gpus(node)
	n.withheld = withheld > 0
	n.Reasons = append(n.Reasons, unusable...)
	if devices == 0 && len(unusable) > 0 {
		if n.Verdict == Fits {
			n.Verdict = Unusable
		}
		return n
	}
	for _, name := range slices.Sorted(maps.Keys(d.Extended)) {
		if have := node.Status.Allocatable[name]; !have.IsZero() {
			n.Reasons = append(n.Reasons, fmt.Sprintf(servedByPlugin, name, have.String()))
			n.Verdict = Excluded
			return n
		}
	}
	if len(d.Unallocated) == 0 && n.Verdict == Fits {
		n.Reasons = append(n.Reasons, "the pod's devices are here.")
		return n
	}
	worst := Fits
	for _, claim := range d.Unallocated {
		for _, r := range claim.Spec.Devices.Requests {
			request := c.request(ctx, node, claim, r)
			n.Requests = append(n.Requests, request)
			if worst == Fits {
				worst = request.Verdict
			}
		}
	}
	if n.Verdict == Excluded {
		return n
	}
	n.Verdict = worst
	if worst == Fits {
		n.Verdict = c.together(ctx, node, d, &n)
	}
	if n.Verdict == Full || n.Verdict == Together {
		if ever, err := c.everFits(ctx, node, d.Unallocated...); err == nil && !ever {
			n.Verdict = Never
			reason := "it would not fit here even if all devices were free."
			if c.modesClash(ctx, node, d.Unallocated) {
				reason += " All pieces of one AMD GPU are of one kind."
			}
			n.Reasons = append(n.Reasons, reason)
		}
	}
	if n.withheld && (n.Verdict == Lacking || n.Verdict == Never) {
		n.Verdict = Unusable // what the GPUs would have is not known
	}
	return n
}

// request explains one request on a node.
func (c *world) request(ctx context.Context, node *corev1.Node, claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) Request {
	out := Request{Claim: claim.Name, Request: r.Name}
	unclear := func(err error) Request {
		out.Verdict, out.Text = Unclear, err.Error()+"."
		var selector *allocation.SelectorError
		out.badSelector = errors.As(err, &selector)
		return out
	}
	var all []supply
	var holders []cluster.Holder
	hopeless := true
	for _, ch := range demand.Choices(r) {
		s, err := c.supplyOf(ctx, node, ch)
		if err != nil {
			return unclear(err)
		}
		all = append(all, s)
		hopeless = hopeless && s.hopeless()
		holders = append(holders, s.holders...)
		out.Places, out.Free, out.Taken, out.Tainted = out.Places+s.places, out.Free+s.free, out.Taken+s.taken, out.Tainted+s.tainted
		out.Taints, out.Rules = union(out.Taints, s.taints...), union(out.Rules, s.rules...)
		out.switchTo = cmp.Or(out.switchTo, s.switchTo)
	}
	out.Holders = namesOf(holders)
	fits := false
	if !hopeless { // otherwise the allocator need not search
		var err error
		if fits, err = c.fits(ctx, node, alone(claim, r)); err != nil {
			return unclear(err)
		}
	}
	var texts []string
	for i, s := range all {
		verdict := s.verdict()
		switch {
		case len(all) == 1 && fits:
			verdict = Fits
		case !fits && verdict == Fits:
			verdict = Full
		}
		if i == 0 || out.Verdict == Lacking { // a later alternative says more
			out.Verdict = verdict
		}
		var offers []string
		if i == 0 && !c.brief { // once is enough
			offers = c.offers(node)
		}
		text := s.sentence(verdict, offers)
		if verdict == Full {
			text += s.modeSentence()
			out.InMode = append(out.InMode, s.inMode...)
			out.sameMode = out.sameMode || s.inOtherModes() < s.gpus
			if out.Nearest == nil && s.Count == 1 {
				out.Nearest = s.nearest
			}
		}
		switch {
		case i > 0:
			text = fmt.Sprintf("Choice %d: %s", i+1, text)
		case len(all) > 1:
			text = "choice 1: " + text
		}
		texts = append(texts, text)
	}
	if fits {
		out.Verdict = Fits
	}
	out.Text = strings.Join(texts, " ")
	if out.Free > 0 && (c.in.Partial || c.in.unread(unread.Rules)) {
		out.Text = strings.TrimSuffix(out.Text, ".") + ", by what you may see."
	}
	return out
}

// together checks requests together that each fit alone.
func (c *world) together(ctx context.Context, node *corev1.Node, d demand.Demand, n *Node) Verdict {
	say := func(format string, args ...any) { n.Reasons = append(n.Reasons, fmt.Sprintf(format, args...)) }
	fits, err := c.fits(ctx, node, d.Unallocated...)
	if err != nil {
		say("%s.", err)
		return Unclear
	}
	if fits {
		return Fits
	}
	for _, claim := range d.Unallocated {
		if len(claim.Spec.Devices.Constraints) == 0 {
			continue
		}
		tied, err := c.fits(ctx, node, claim)
		loose, err2 := c.fits(ctx, node, unconstrained(claim))
		if err := errors.Join(err, err2); err != nil {
			say("%s.", err)
			return Unclear
		}
		if !tied && loose {
			say("each request alone would fit, but not all of them %s.", constraints(claim))
			return Together
		}
	}
	say("each request alone would fit, but not all of them at once.")
	return Together
}

// constraints describes the constraints of a claim.
func constraints(claim *resourceapi.ResourceClaim) string {
	var out []string
	for _, con := range claim.Spec.Devices.Constraints {
		of := "all requests"
		if len(con.Requests) > 0 {
			of = strings.Join(con.Requests, ", ")
		}
		switch {
		case con.MatchAttribute != nil && strings.HasSuffix(string(*con.MatchAttribute), "/parentUUID"):
			out = append(out, fmt.Sprintf("on one GPU (matchAttribute %s for %s)", *con.MatchAttribute, of))
		case con.MatchAttribute != nil:
			out = append(out, fmt.Sprintf("with the same %s (matchAttribute for %s)", *con.MatchAttribute, of))
		case con.DistinctAttribute != nil:
			out = append(out, fmt.Sprintf("with a different %s each (distinctAttribute for %s)", *con.DistinctAttribute, of))
		}
	}
	return strings.Join(out, " and ")
}

// gpus counts the devices of the node that the scheduler can use and the GPUs that are withheld, and
// describes the GPUs that it cannot use.
func (c *world) gpus(node *corev1.Node) (devices, withheld int, unusable []string) {
	var incomplete, all int
	for _, p := range c.Pools {
		if p.GPU == "" || p.Node != node.Name {
			continue
		}
		all++
		switch {
		case p.Incomplete():
			incomplete++
		case len(p.Devices) == 0:
			withheld++
		default:
			devices += len(p.Devices)
		}
	}
	if withheld > 0 {
		unusable = append(unusable, ofGPUs(withheld, all)+" withheld: the node's plugin publishes nothing, "+
			"because another system serves the GPU or something is wrong with it.")
	}
	if incomplete > 0 {
		unusable = append(unusable, ofGPUs(incomplete, all)+" being published; the scheduler waits until that is done.")
	}
	return devices, withheld, unusable
}

// ofGPUs is the start of a sentence about some GPUs of a node.
func ofGPUs(n, all int) string {
	switch {
	case all == 1:
		return "its GPU is"
	case n == all:
		return fmt.Sprintf("all %d of its GPUs are", all)
	case n == 1:
		return fmt.Sprintf("1 of its %d GPUs is", all)
	}
	return fmt.Sprintf("%d of its %d GPUs are", n, all)
}

// offers lists the kinds of devices of a node, the largest first, without variants of profiles.
func (c *world) offers(node *corev1.Node) []string {
	var wholes, labels []string
	for _, p := range c.Pools {
		for _, d := range slices.Backward(p.Devices) {
			switch {
			case p.Driver != names.DriverName || !d.On(node):
			case d.Name == p.GPU: // the first device of a GPU, and the largest
				wholes = union(wholes, d.Label)
			default:
				labels = union(labels, d.Label)
			}
		}
	}
	labels = union(wholes, labels...)
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool {
		i := strings.IndexAny(l, "+-")
		return i > 0 && slices.Contains(labels, l[:i])
	})
}

func products(n cluster.Node) string {
	count := map[string]int{}
	for _, g := range n.GPUs {
		count[g.ProductName]++
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if name == "" {
			out = append(out, fmt.Sprintf("%d × a GPU without devices", count[name]))
			continue
		}
		out = append(out, fmt.Sprintf("%d × %s", count[name], name))
	}
	return strings.Join(out, ", ")
}

// exclude says why the pod cannot run on a node, regardless of its GPUs.
func (c *world) exclude(n *Node, node *corev1.Node, d demand.Demand) {
	say := func(format string, args ...any) {
		n.Reasons, n.barred = append(n.Reasons, fmt.Sprintf(format, args...)), true
	}
	for _, claim := range d.Allocated {
		selector := claim.Status.Allocation.NodeSelector
		if selector == nil {
			continue
		}
		if s, err := nodeaffinity.NewNodeSelector(selector); err == nil && !s.Match(node) {
			say("the claim %s has its devices on another node, and the pod must follow.", claim.Name)
		}
	}
	if c.Node(node.Name) == nil {
		return
	}
	c.excludePod(n, node)
}
