package web

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

// rollouts returns the plans, and the nodes that are being switched.
func (s *Server) rollouts(c scope) *page {
	plans := c.Viewer.Rollouts(c.Snapshot)
	p := &page{title: "Rollouts", nav: "Rollouts", blocks: []block{{whole: h.Section(blockID("plans"),
		h.H1(g.Text("Rollouts")),
		g.If(len(plans) == 0, quiet("There is no PartitionPlan"+when(c.NoPlans, " that you may see")+".")),
		g.Map(plans, s.plan),
	)}}}
	if !c.NoProfiles {
		switching, failed := overview.Moving(c.Snapshot)
		p.blocks = append(p.blocks, block{whole: s.switches(switching, failed, c.now)})
	}
	return p
}

func (s *Server) plan(r overview.Rollout) g.Node {
	counts := r.Counts()
	if r.Result == "" && r.Done != nil {
		counts += ", done about " + clock(*r.Done)
	}
	return h.Article(h.Class("card plan"), h.ID("p-"+r.Plan),
		h.Header(h.H2(g.Text(r.Plan)), badge("profile "+r.Profile), badge(word(r), cmp.Or(string(overview.RolloutTone(&r.Rollout)), "warn")), g.If(r.Steps > 1, badge(fmt.Sprintf("step %d of %d", r.Step, r.Steps)))),
		progress(r.Nodes),
		h.P(g.Text(counts)),
		some(r.Message, func(text string) g.Node { return quiet(cluster.Sentence(text)) }),
		s.planNodes("failed", r.Failed),
		s.planNodes("set aside", r.SetAside),
	)
}

func progress(n v1beta1.PlanNodeCounts) g.Node {
	of := func(part int32) string { return share(int(part), int(n.Selected)) }
	count := func(n int32) string { return strconv.Itoa(int(n)) }
	return h.Div(h.Class("progress"), h.Role("progressbar"), h.Aria("valuemin", "0"), h.Aria("valuemax", count(n.Selected)), h.Aria("valuenow", count(n.Updated)), h.Aria("label", "Nodes updated"),
		strip(rect("done", "", of(n.Updated)), rect("busy", of(n.Updated), of(n.Switching)), rect("bad", of(n.Updated+n.Switching), of(n.Failed))))
}

// planNodes returns nodes that do not get the plan's profile, if there are any.
func (s *Server) planNodes(are string, all []v1beta1.PlanNode) g.Node {
	if len(all) == 0 {
		return nil
	}
	return h.Details(h.Summary(g.Text(fmt.Sprintf("%d %s", len(all), are))), h.Ul(g.Map(all, func(n v1beta1.PlanNode) g.Node {
		return h.Li(h.A(h.Href(s.at("nodes", n.NodeName)), g.Text(n.NodeName)), g.Text(overview.Outcome(&n)))
	})))
}

// switches returns the nodes that are being switched, and those whose last switch failed.
func (s *Server) switches(switching, failed []*overview.Node, now time.Time) g.Node {
	moving := func(n *overview.Node) g.Node {
		return s.moving(n, badge(string(n.Profile.State), "warn"), stages(n.Profile.State), h.P(g.Text(n.Profile.Doings(now))))
	}
	stuck := func(n *overview.Node) g.Node {
		return s.moving(n, badge("Failed", "bad"), nil, h.P(g.Text(n.Profile.Failure(now))))
	}
	list := func(nodes []*overview.Node, draw func(*overview.Node) g.Node) g.Node {
		shown := nodes[:min(len(nodes), maxMoving)]
		return g.Group{h.Ul(h.Class("moving"), g.Map(shown, draw)), moreNodes(len(nodes) - len(shown))}
	}
	return h.Section(blockID("switches"),
		h.H2(g.Text("Switches under way")),
		g.If(len(switching) == 0, quiet("No node is being switched.")),
		list(switching, moving),
		g.If(len(failed) > 0, g.Group{h.H2(g.Text("Failed switches")), list(failed, stuck)}),
	)
}

// moving returns a node with a switch.
func (s *Server) moving(n *overview.Node, state g.Node, more ...g.Node) g.Node {
	return h.Li(h.Class("card"),
		h.Header(
			h.H3(h.A(h.Href(s.at("nodes", n.Name)), g.Text(n.Name))), state,
			badge(cluster.ProfileName(n.Profile.Switch.From.ProfileName)+" → "+cluster.ProfileName(n.Profile.Switch.To.ProfileName)),
		),
		g.Group(more),
	)
}

func moreNodes(n int) g.Node {
	if n == 0 {
		return nil
	}
	return quiet("And " + num(n) + " more nodes.")
}

// stages returns the stages of a switch, with the current one. Rebooting is part of Applying.
func stages(now v1beta1.State) g.Node {
	all := []v1beta1.State{v1beta1.Planning, v1beta1.Waiting, v1beta1.Tainted, v1beta1.Draining, v1beta1.Applying, v1beta1.Verifying}
	if now == v1beta1.RollingBack {
		all[len(all)-1] = v1beta1.RollingBack
	}
	if now == v1beta1.Rebooting {
		all[4] = v1beta1.Rebooting
	}
	at := slices.Index(all, now)
	var out g.Group
	for i, s := range all {
		is := "ahead"
		switch {
		case i < at:
			is = "past"
		case i == at:
			is = "now"
		}
		out = append(out, h.Li(h.Class(is), g.If(i == at, h.Aria("current", "step")), g.Text(string(s))))
	}
	return h.Ol(h.Class("steps"), h.Aria("label", "Progress"), out)
}

// word returns how far a plan is, in a word.
func word(r overview.Rollout) string {
	switch {
	case !r.Known:
		return "waiting for the controller"
	case r.Result != "":
		return string(r.Result)
	case r.Paused:
		return "Paused"
	}
	return r.Reason
}
