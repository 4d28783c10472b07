package fit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// way has devices with the holders that keep them from being allocated.
type way struct {
	devices []string
	holders []cluster.Holder
	// unsure is true if claims that could not be read may hold it, too.
	unsure bool
}

const (
	// maxTried is the maximum number of nodes for which ways are tried, maxReleased that of holders for which
	// it is tried whether fewer are enough.
	maxTried    = 3
	maxReleased = 16
	// wayTimeout limits the search on all nodes.
	wayTimeout = 3 * time.Second
)

// addWay adds to one of the nodes how the fewest holders would make room for the pod. The scheduler's
// allocator proves it.
func (m *Model) addWay(ctx context.Context, d *demand.Demand, nodes []Node) {
	ctx, cancel := context.WithTimeout(ctx, wayTimeout)
	defer cancel()
	of := map[string][]way{}
	var full []*Node
	for i := range nodes {
		n := &nodes[i]
		if ways := n.ways(); len(ways) > 0 {
			of[n.Name], full = ways, append(full, n)
		}
	}
	slices.SortStableFunc(full, func(a, b *Node) int { return byHolders(of[a.Name][0], of[b.Name][0]) })
	var best *Node
	for _, n := range full[:min(len(full), maxTried)] {
		n.way = m.way(ctx, m.node(n.Name), d, of[n.Name])
		switch {
		case n.way == nil:
		case best == nil:
			best = n
		case len(n.way.holders) < len(best.way.holders):
			best.way, best = nil, n
		default:
			n.way = nil
		}
	}
}

// ways returns the taken devices of a full node that its short requests could have, those with the fewest
// holders first.
func (n *Node) ways() (out []way) {
	if n.Verdict != Full && n.Verdict != NotTogether {
		return nil
	}
	for _, r := range n.Requests {
		if r.Verdict != Fits || n.Verdict == NotTogether {
			out = append(out, lists.Filter(r.ways, way.known)...)
		}
	}
	slices.SortStableFunc(out, byHolders)
	return out
}

// known reports whether the holders can be told apart: of claims of other namespaces, a viewer may not see the
// names.
func (w way) known() bool {
	return !slices.ContainsFunc(w.holders, func(h cluster.Holder) bool { return h.Claim == "" })
}

func byHolders(a, b way) int { return cmp.Compare(len(a.holders), len(b.holders)) }

// way returns the devices that the pod gets on a node if holders end, nil if it gets none.
func (m *Model) way(ctx context.Context, node *corev1.Node, d *demand.Demand, ways []way) *way {
	var released []cluster.Holder
	var devices []string
	for _, w := range ways {
		before := len(released)
		if released = cluster.AddHolders(slices.Clip(released), w.holders...); len(released) == before {
			continue
		}
		if devices = m.without(ctx, node, d, released); len(devices) > 0 {
			break
		}
	}
	if len(devices) == 0 {
		return nil
	}
	for i := len(released) - 1; i >= 0 && len(released) > 1 && len(released) <= maxReleased; i-- {
		fewer := slices.Delete(slices.Clone(released), i, i+1)
		if got := m.without(ctx, node, d, fewer); len(got) > 0 {
			released, devices = fewer, got
		}
	}
	slices.SortFunc(released, func(a, b cluster.Holder) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
	})
	return &way{devices, released, m.unsure}
}

// without returns the devices that a pod gets on a node without some holders.
func (m *Model) without(ctx context.Context, node *corev1.Node, d *demand.Demand, released []cluster.Holder) []string {
	held := allocation.Nothing()
	for i := range m.objects.Claims {
		c := &m.objects.Claims[i]
		ends := slices.ContainsFunc(released, func(h cluster.Holder) bool { return h.Namespace == c.Namespace && h.Claim == c.Name })
		if c.Status.Allocation != nil && !ends {
			allocation.Hold(held, c.Status.Allocation.Devices.Results)
		}
	}
	devices, _ := m.allocate(ctx, held, m.slices, node, d.Unallocated) // an error: it is not known
	return devices
}

// text says how the pod gets its devices on a node.
func (w *way) text(node string) string {
	holders := lists.Map(w.holders, func(h cluster.Holder) string {
		if consumers := h.Consumers(); len(consumers) > 0 {
			return strings.Join(lists.Map(consumers, func(c string) string { return h.Namespace + "/" + c }), ", ")
		}
		return "claim " + h.Namespace + "/" + h.Claim + " without a pod"
	})
	ends, is := "ends", "is"
	if len(holders) > 1 {
		ends = "end"
	}
	if len(w.devices) > 1 {
		is = "are"
	}
	out := fmt.Sprintf("wait, or delete the holders: %s on %s %s free when %s %s", text.List(w.devices, maxNames), node, is, text.List(holders, maxNames), ends)
	if w.unsure {
		out += ", as far as you may see"
	}
	return out + ". This pod then gets its devices automatically."
}
