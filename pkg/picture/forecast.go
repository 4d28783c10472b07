package picture

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
)

// DrawForecast writes what a plan would do.
func DrawForecast(p *Page, f rollout.Forecast, notes []string, now time.Time) {
	p.Wrap("", fmt.Sprintf("Plan %s would switch %s to profile %s in %s. Nothing was changed.",
		f.Plan, text.Count(len(f.Nodes), "node"), f.Profile, text.Count(f.Steps, "step")), Normal)
	p.Unread(f.Unread)
	p.Blank()
	var rows [][]string
	evicts, blocked, unfit := 0, 0, 0
	for i := range f.Nodes {
		n := &f.Nodes[i]
		rows = append(rows, []string{fmt.Sprint(n.Step), n.Name, cmp.Or(strings.Join(forecastRemarks(n), "; "), "none")})
		switch {
		case n.Unfit != "":
			unfit++
		case len(n.Blocked) > 0:
			blocked++
		default:
			evicts += len(n.Evicts)
		}
	}
	if len(rows) > 0 {
		p.Table([]string{"STEP", "NODE", "PODS"}, rows)
		p.Blank()
	}
	if len(f.Others) > 0 {
		rows = nil
		for _, o := range f.Others {
			rows = append(rows, []string{o.Name, o.Why})
		}
		p.Table([]string{"NOT SWITCHED", "WHY"}, rows)
		p.Blank()
	}
	p.Wrap("", fmt.Sprintf("%s would be evicted.", text.Count(evicts, "pod")), Normal)
	if blocked > 0 {
		p.Wrap("", fmt.Sprintf("%s would be set aside until the pods can be evicted.", text.Count(blocked, "node")), Yellow)
	}
	if unfit > f.MaxFailures {
		p.Wrap("", fmt.Sprintf("The profile does not fit %s, and %d may fail: the plan would stop.", text.Count(unfit, "node"), f.MaxFailures), Red)
	} else if unfit > 0 {
		p.Wrap("", fmt.Sprintf("The profile does not fit %s.", text.Count(unfit, "node")), Yellow)
	}
	p.Wrap("", forecastTime(f, now), Normal)
	for _, note := range notes {
		p.Wrap("", note, Yellow)
	}
}

// DrawSwitchForecast prints what a switch of one node would do.
func DrawSwitchForecast(p *Page, profile string, n *rollout.ForecastNode, unread []text.Unread) {
	remarks := forecastRemarks(n)
	if len(remarks) == 0 {
		remarks = []string{"evicts no pod"}
	}
	p.Wrap("", fmt.Sprintf("Profile %s on %s, by a dry run:", profile, n.Name), Normal)
	for _, remark := range remarks {
		p.Wrap("  ", remark, Normal)
	}
	p.Unread(unread)
}

func forecastRemarks(n *rollout.ForecastNode) (out []string) {
	if n.Unfit != "" {
		return []string{"would fail: " + n.Unfit}
	}
	for _, c := range n.Blocked {
		name := c.Name
		if c.Resource != "" {
			name = schema.GroupResource{Group: c.APIGroup, Resource: c.Resource}.String() + "/" + name
		}
		out = append(out, fmt.Sprintf("cannot be evicted: %s/%s: %s", c.Namespace, name, c.Why))
	}
	head := "evicts "
	if len(n.Unknown) > 0 {
		head = "may evict "
	}
	for _, pod := range n.Evicts {
		said := head + pod.Namespace + "/" + pod.Name
		if pod.NotReplaced {
			said += " (nothing replaces it)"
		}
		out = append(out, said)
	}
	return out
}

// forecastTime says how long the rollout would take.
func forecastTime(f rollout.Forecast, now time.Time) string {
	said := "How long it takes is not known: no node has been switched yet."
	switch {
	case len(f.Nodes) == 0:
		return "There is nothing to do."
	case f.Observed > 0 && f.Ends == nil:
		said = "It would not end: no window opens."
	case f.Ends != nil:
		said = fmt.Sprintf("It would take about %s, at %s a node, the mean of %s.",
			f.Ends.Sub(now).Round(time.Second), f.Switch.Round(time.Second/10), text.Count(f.Observed, "switch"))
	}
	if f.Approvals > 0 {
		said += fmt.Sprintf(" It waits for %s, which takes no time here.", text.Count(f.Approvals, "approval"))
	}
	return said
}
