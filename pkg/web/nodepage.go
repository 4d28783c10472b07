package web

import (
	"strconv"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

// node returns a node with its GPUs.
func (s *Server) node(c scope, name string) (*page, error) {
	n := c.Node(c.Find(name))
	if n == nil {
		return nil, errNotThere
	}
	p := &page{title: name, nav: "Fleet", crumbs: []link{{"Fleet", "/"}, {name: name}}}
	p.blocks = append(p.blocks, block{whole: s.nodeHead(n, c.requested.amounts.String(), c.now)})
	usage, _ := s.usage(name)
	for i := range n.GPUs {
		gpu := &n.GPUs[i]
		p.blocks = append(p.blocks, block{whole: s.nodeGPU(name, gpu, usage[gpu.Name].Short)})
	}
	p.blocks = append(p.blocks, block{whole: history(n.Status)})
	return p, nil
}

func (s *Server) nodeHead(n *overview.Node, requested string, now time.Time) g.Node {
	return h.Section(blockID("nodehead"), h.Class("head"),
		h.H1(g.Text(n.Name)), nodeBadges(n),
		h.P(g.Text(n.Model), some(n.DriverVersion(), func(version string) g.Node { return g.Text(", driver " + version) })),
		some(requested, func(amounts string) g.Node { return h.P(g.Text("Pods request " + amounts + ".")) }),
		g.Map(n.Remarks(now), func(r cluster.Remark) g.Node { return note(r.Text, when(r.Warning, "warn")) }),
		g.Map(n.Lost, func(d cluster.Held) g.Node {
			return h.P(h.Class("note bad"), g.Text(d.Label+" ("+d.Device+") is held by "), between("; ", g.Map(d.Holders, holder)), g.Text(" but no longer published."))
		}),
		s.room("Free on this node: ", n.Free()),
	)
}

// nodeGPU returns a GPU in the list of its node.
func (s *Server) nodeGPU(node string, gpu *cluster.GPU, use string) g.Node {
	return h.Article(blockID("g-"+gpu.Name), h.Class("card gpu"),
		h.Header(
			h.H2(h.A(h.Href(s.at("nodes", node, gpu.Name)), g.Text(gpu.Name))), gpuBadges(gpu),
			h.Span(h.Class("use"), h.ID("u-"+gpu.Name), g.Text(use)),
		),
		bar(gpu),
		gpuNotes(gpu),
		g.If(len(gpu.Held) > 0, h.Ul(h.Class("held"), g.Map(gpu.Held, heldBy))),
		s.room("free: ", cluster.Plain(gpu.Fits)),
	)
}

// heldBy returns an item for each holder of a device.
func heldBy(d cluster.Held) g.Node {
	item := func(who g.Node, has string) g.Node {
		return h.Li(key(d), h.Div(h.B(g.Text(d.Label)), unpublished(d), g.Text(" "), who, small("", has)))
	}
	out := g.Map(d.Holders, func(o cluster.Holder) g.Node { return item(holder(o), amounts(o.Consumed)) })
	if left := amounts(d.Left); left != "" {
		out = append(out, item(h.Em(g.Text("left")), left))
	}
	return out
}

// history has the finished switches of a node.
func history(status *v1beta1.GPUNodeStatus) g.Node {
	if status == nil || len(status.History) == 0 {
		return h.Section(blockID("history"))
	}
	head := append(th("Started", "From", "To", "Result"), right(h.Th, "Took"), right(h.Th, "Evicted"))
	return h.Section(blockID("history"), h.H2(g.Text("Switches")), table("Switches of the node", head, g.Map(status.History, func(w v1beta1.SwitchRecord) g.Node {
		result := string(w.Result)
		if w.Reason != "" && w.Reason != result {
			result += " (" + w.Reason + ")"
		}
		return h.Tr(
			h.Td(g.Text(clock(w.StartTime.UTC()))), h.Td(g.Text(cluster.ProfileName(w.FromProfileName))), h.Td(g.Text(cluster.ProfileName(w.ToProfileName))),
			h.Td(g.Text(result), some(w.Message, func(m string) g.Node { return g.Group{h.Br(), h.Small(g.Text(m))} })),
			right(h.Td, overview.Took(&w)),
			right(h.Td, strconv.Itoa(int(w.EvictedPodCount))),
		)
	})))
}
