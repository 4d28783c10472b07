package fit

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
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// judge evaluates a node that publishes GPUs, for a demand.
func (m *Model) judge(ctx context.Context, name string, drawn cluster.Node, d *demand.Demand) Node {
	n := Node{Name: name, GPUs: products(drawn), Verdict: Fits}
	if !m.objects.Partial {
		n.Free = drawn.Free()
	}
	node := m.node(name)
	if m.exclude(&n, node, d); len(n.Reasons) > 0 {
		n.Verdict = Excluded
	}
	m.judgeDevices(ctx, &n, node, d)
	m.judgeRequests(&n, node, d)
	m.addSwitch(&n)
	return n
}

// judgeDevices adds the verdict about the devices of a node.
func (m *Model) judgeDevices(ctx context.Context, n *Node, node *corev1.Node, d *demand.Demand) {
	devices, withheld, unusable := m.gpus(node)
	n.Reasons = append(n.Reasons, unusable...)
	if devices == 0 && len(unusable) > 0 {
		if n.Verdict == Fits {
			n.Verdict = Unusable
		}
		return
	}
	if served := servedByPlugin(node, d); len(served) > 0 {
		n.Reasons, n.Verdict = append(n.Reasons, served[0]), Excluded
		return
	}
	if len(d.Unallocated) == 0 && n.Verdict == Fits {
		n.Reasons = append(n.Reasons, "the pod's devices are on this node.")
		return
	}
	known := withheld == 0 && len(m.withheldBySwitch(node.Name)) == 0 // what the node has
	if m.brief && n.excluded {
		if known {
			n.lacking(m.lacks(ctx, node, d))
		}
		return
	}
	first := Fits
	d.EachRequest(func(claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		n.Requests = append(n.Requests, m.request(ctx, node, claim, r))
		if first == Fits {
			first = n.Requests[len(n.Requests)-1].Verdict
		}
	})
	var lacks []*Cause
	for _, r := range n.Requests {
		if r.cause != nil {
			lacks = append(lacks, r.cause)
		}
	}
	if n.Verdict == Excluded {
		if known {
			n.lacking(lacks)
		}
		return
	}
	if n.Verdict, n.causes = first, lacks; first == Fits {
		m.together(ctx, n, node, d)
	}
	if n.Verdict == Full || n.Verdict == NotTogether {
		if ever, err := m.everFits(ctx, node, d.Unallocated...); err == nil && !ever {
			n.Verdict = Never
			reason := "it would not fit here even if all devices were free."
			if m.modesClash(ctx, node, d) {
				reason += " All pieces of one AMD GPU are of one kind."
			}
			n.Reasons = append(n.Reasons, reason)
		}
	}
	if withheld > 0 && (n.Verdict == Lacking || n.Verdict == Never) {
		n.Verdict = Unusable // the devices of the withheld GPUs are unknown
	}
}

// lacking sets the verdict of an excluded node if it has no devices for some requests: to open it to the
// pod would not help.
func (n *Node) lacking(lacks []*Cause) {
	if len(lacks) > 0 {
		n.Verdict, n.causes = Lacking, lacks
	}
}

// lacks returns why requests of the pod are Lacking on a node. It does not search for an allocation.
func (m *Model) lacks(ctx context.Context, node *corev1.Node, d *demand.Demand) (out []*Cause) {
	d.EachRequest(func(claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		var all []*supply
		for _, ch := range demand.Choices(r) {
			s, err := m.supplyOf(ctx, node, ch, true)
			if err != nil || s.verdict(false) != Lacking {
				return
			}
			all = append(all, s)
		}
		out = append(out, m.lackOf(node, claim.Name+"/"+r.Name, all))
	})
	return out
}

// request evaluates one request on a node.
func (m *Model) request(ctx context.Context, node *corev1.Node, claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) Request {
	out := Request{Claim: claim.Name, Request: r.Name}
	fail := func(err error) Request {
		out.Verdict, out.Text = Unclear, err.Error()+"."
		var selector *allocation.SelectorError
		if errors.As(err, &selector) {
			out.Verdict = SelectorFails
		}
		return out
	}
	var all []*supply
	hopeless := true
	for _, ch := range demand.Choices(r) {
		s, err := m.supplyOf(ctx, node, ch, false)
		if err != nil {
			return fail(err)
		}
		all = append(all, s)
		hopeless = hopeless && s.hopeless()
		out.Holders = cluster.AddHolders(out.Holders, s.holders...)
		out.Places, out.Free, out.Taken, out.Tainted = out.Places+s.places, out.Free+s.free, out.Taken+s.taken, out.Tainted+s.tainted
		out.Taints = addTaints(out.Taints, s.taints...)
		out.switchTo = cmp.Or(out.switchTo, s.switchTo)
	}
	fits := false
	if !hopeless { // saves the allocator's search
		var err error
		if fits, err = m.fits(ctx, node, alone(claim, r)); err != nil {
			return fail(err)
		}
	}
	var texts []string
	for i, s := range all {
		verdict := s.verdict(fits && len(all) == 1)
		if i == 0 || out.Verdict == Lacking { // a later alternative says more
			out.Verdict = verdict
		}
		text := m.supplyText(node, s, verdict)
		if len(all) > 1 {
			text = fmt.Sprintf("choice %d: %s", i+1, text)
		}
		texts = append(texts, text)
		if verdict == Full {
			out.InMode = append(out.InMode, s.inMode...)
		}
		out.ways = append(out.ways, s.ways...)
	}
	if fits {
		out.Verdict = Fits
	}
	if out.Verdict == Lacking {
		out.cause = m.lackOf(node, claim.Name+"/"+r.Name, all)
	}
	out.Text = strings.Join(texts, "; ")
	if out.Free > 0 && m.unsure {
		out.Text += ", as far as you may see"
	}
	out.Text += "."
	return out
}

func (m *Model) together(ctx context.Context, n *Node, node *corev1.Node, d *demand.Demand) {
	say := func(v Verdict, format string, args ...any) {
		n.Verdict, n.Reasons = v, append(n.Reasons, fmt.Sprintf(format, args...))
	}
	fits, err := m.fits(ctx, node, d.Unallocated...)
	switch {
	case err != nil:
		say(Unclear, "%s.", err)
		return
	case fits:
		return
	}
	for _, claim := range d.Unallocated {
		if len(claim.Spec.Devices.Constraints) == 0 {
			continue
		}
		tied, err := m.fits(ctx, node, claim)
		loose, err2 := m.fits(ctx, node, unconstrained(claim))
		if err := errors.Join(err, err2); err != nil {
			say(Unclear, "%s.", err)
			return
		}
		if !tied && loose {
			if cause := m.withoutAttribute(ctx, node, claim); cause != nil {
				say(Lacking, "%s.", cause)
				n.causes = []*Cause{cause}
			} else {
				say(NotTogether, "each request alone would fit, but not all of them %s.", constraints(claim))
			}
			return
		}
	}
	say(NotTogether, "each request alone would fit, but not all of them at once.")
}

// withoutAttribute says which attribute of a constraint no device of a request has: the scheduler then
// allocates none. It is nil if there is none.
func (m *Model) withoutAttribute(ctx context.Context, node *corev1.Node, claim *resourceapi.ResourceClaim) *Cause {
	for _, con := range claim.Spec.Devices.Constraints {
		name := string(ptr.Deref(con.MatchAttribute, ptr.Deref(con.DistinctAttribute, "")))
		lacks := func(d *cluster.Device) bool {
			short, own := strings.CutPrefix(name, d.Pool.Driver+"/")
			_, qualified := d.Attributes[resourceapi.QualifiedName(name)]
			_, unqualified := d.Attributes[resourceapi.QualifiedName(short)]
			return !qualified && (!own || !unqualified)
		}
		for _, r := range claim.Spec.Devices.Requests {
			if len(con.Requests) > 0 && !slices.Contains(con.Requests, r.Name) {
				continue
			}
			for _, ch := range demand.Choices(r) {
				s, err := m.supplyOf(ctx, node, ch, false)
				if err == nil && s.places > 0 && !slices.ContainsFunc(s.nearly, func(d *cluster.Device) bool { return !lacks(d) }) {
					return &Cause{
						about: claim.Name + "/" + r.Name, rank: enoughSelectors,
						text:   fmt.Sprintf("the constraint names the attribute %s, which no device of class %s has", name, ch.Class),
						values: map[string]value{labels: {texts: attributesOf(s.nearly)}},
					}
				}
			}
		}
	}
	return nil
}

// attributesOf returns the names of the attributes that all devices have.
func attributesOf(devices []*cluster.Device) (out []string) {
	for i, d := range devices {
		there := lists.Map(slices.Sorted(maps.Keys(d.Attributes)), func(name resourceapi.QualifiedName) string { return names.Unqualified(string(name)) })
		if i == 0 {
			out = there
		}
		out = lists.Filter(out, func(name string) bool { return slices.Contains(there, name) })
	}
	return out
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

// gpus returns the number of the node's devices that the scheduler can use, the number of withheld
// GPUs, and descriptions of the GPUs that it cannot use.
func (m *Model) gpus(node *corev1.Node) (devices, withheld int, unusable []string) {
	var incomplete, all int
	for _, p := range m.Pools {
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
		unusable = append(unusable, fmt.Sprintf("withheld GPUs: %d of %d. The node's plugin publishes nothing of them, "+
			"because another system serves the GPU or it has a problem.", withheld, all))
	}
	if incomplete > 0 {
		unusable = append(unusable, fmt.Sprintf("GPUs being published: %d of %d. The scheduler waits until that is done.", incomplete, all))
	}
	return devices, withheld, unusable
}

// servedByPlugins returns nodes without Tranche's GPUs on which a device plugin serves the pod's
// requests.
func (m *Model) servedByPlugins(d *demand.Demand, shown []Node) (out []Node) {
	for i := range m.objects.Nodes {
		node := &m.objects.Nodes[i]
		if slices.ContainsFunc(shown, func(n Node) bool { return n.Name == node.Name }) {
			continue
		}
		if served := servedByPlugin(node, d); len(served) > 0 {
			out = append(out, Node{Name: node.Name, Verdict: Excluded, Reasons: served})
		}
	}
	return out
}

// servedByPlugin has a sentence for each extended resource that a device plugin serves on a node.
func servedByPlugin(node *corev1.Node, d *demand.Demand) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(d.Extended)) {
		if have := node.Status.Allocatable[name]; !have.IsZero() {
			out = append(out, fmt.Sprintf("a device plugin serves %s on this node (%s in total), so Tranche's devices do not count for it here.", name, have.String()))
		}
	}
	return out
}

// offers returns the kinds of devices of a node, the largest first, without variants of profiles.
func (m *Model) offers(node *corev1.Node, shares bool) []string {
	var wholes, labels []string
	for _, p := range m.Pools {
		for _, d := range slices.Backward(p.Devices) {
			switch {
			case p.Driver != names.DriverName || !d.On(node) || d.Shared() && !shares || d.Type == gpu.TypeMonitor:
			case d.Name == p.GPU: // the first device of a GPU, and the largest
				wholes = lists.Union(wholes, strings.Replace(d.Label, "GPU", d.Vendor().Title()+" GPU", 1))
			default:
				labels = lists.Union(labels, d.Label)
			}
		}
	}
	labels = lists.Union(wholes, labels...)
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool {
		return slices.Contains(labels, cluster.BaseProfile(l))
	})
}

func products(n cluster.Node) string {
	count := map[string]int{}
	for _, g := range n.GPUs {
		count[cmp.Or(g.ProductName, "a GPU without devices")]++
	}
	out := lists.Map(slices.Sorted(maps.Keys(count)), func(name string) string { return fmt.Sprintf("%d × %s", count[name], name) })
	return strings.Join(out, ", ")
}
