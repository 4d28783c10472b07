package picture

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/text"
)

// DrawNode writes the progress of a node, with its GPUs.
func DrawNode(p *Page, node string, n cluster.Progress, gpus []cluster.GPUProgress, now time.Time) {
	p.Wrap("", node+": "+cmp.Or(n.Title(), "no profile is set")+namedBy(n), Normal)
	sentences := n.Sentences(now)
	for _, s := range sentences {
		p.Wrap("  ", s.Text, Normal)
	}
	if len(sentences) == 0 && n.Kept != "" {
		p.Wrap("  ", cluster.Sentence(n.Kept), Normal)
	}
	if len(gpus) > 0 {
		var rows [][]string
		for _, c := range gpus {
			var remarks []string
			for _, n := range overview.StateNotes(c.GPUState) {
				remarks = append(remarks, n.About+n.Text)
			}
			rows = append(rows, []string{c.Name, cluster.ModeText(c.Mode), strings.Join(remarks, "; ")})
		}
		p.Blank()
		p.Table([]string{"GPU", "MODE", "REMARKS"}, rows)
	}
}

// namedBy says what names the desired profile.
func namedBy(n cluster.Progress) string {
	switch {
	case n.Source == v1beta1.FromLabel:
		return ", named by the node's label " + n.Label
	case n.Source == v1beta1.FromSpec:
		return ", named by the GPUNode's spec.profileName"
	case n.Source == v1beta1.FromPlan:
		return ", given by PartitionPlan " + n.Plan
	case n.Source == v1beta1.FromDefault:
		return ", which is for nodes of which nobody says otherwise"
	}
	return ""
}

// DrawProfiles writes profiles as a table.
func DrawProfiles(p *Page, profiles []cluster.Profile) {
	var rows [][]string
	for _, f := range profiles {
		rows = append(rows, []string{f.Name, count(f.Desired), count(f.Applied), f.Says})
	}
	if len(rows) > 0 {
		p.Table([]string{"PROFILE", "WANTED BY", "FOLLOWED BY", "WHAT IT SAYS"}, rows)
	} else {
		p.Wrap("", "There are no PartitionProfiles.", Normal)
	}
}

func count(nodes []string) string {
	if len(nodes) == 0 {
		return "-"
	}
	return text.Count(len(nodes), "node")
}

// DrawSwitches writes a history as a table, below the switch under way.
func DrawSwitches(p *Page, s cluster.Switches, now time.Time) {
	switch {
	case s.Now.Switching():
		p.Wrap("", fmt.Sprintf("%s, from %s to %s. %s", s.Node, cluster.ProfileName(s.Now.From), cluster.ProfileName(s.Now.To), s.Now.Doings(now)), Normal)
		p.Blank()
	case s.Now.State == v1beta1.Failed:
		p.Wrap("", s.Node+": "+s.Now.Failure(now), Normal)
		p.Blank()
	}
	var rows [][]string
	for i := range s.History {
		r := &s.History[i]
		text := r.Reason
		if r.Message != "" {
			text = strings.TrimPrefix(text+": "+r.Message, ": ")
		}
		rows = append(rows, []string{r.Started.Format(time.DateTime), overview.Took(r), cmp.Or(r.From, "-"), cmp.Or(r.To, "-"),
			r.Result, strconv.Itoa(int(r.Evicted)), text})
	}
	if len(rows) > 0 {
		p.Table([]string{"STARTED (UTC)", "TOOK", "FROM", "TO", "RESULT", "EVICTED", "REASON"}, rows)
	} else {
		p.Wrap("", fmt.Sprintf("No switch of %s is over yet.", s.Node), Normal)
	}
}
