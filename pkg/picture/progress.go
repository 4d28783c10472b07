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

// DrawNode writes the progress of a node, what pods request of it, and its GPUs.
func DrawNode(p *Page, node *v1beta1.GPUNode, requested cluster.Requested, unread text.Unread, now time.Time) {
	n, gpus := cluster.ProgressOf(node), cluster.GPUsOf(node)
	p.Wrap("", node.Name+": "+cmp.Or(n.Title(), "no profile is set")+namedBy(n), Normal)
	sentences := n.Sentences(now)
	for _, s := range sentences {
		p.Wrap("  ", s.Text, Normal)
	}
	if len(sentences) == 0 && n.Kept != "" {
		p.Wrap("  ", cluster.Sentence(n.Kept), Normal)
	}
	if amounts := requested.String(); amounts != "" {
		p.Wrap("  ", "Pods request "+amounts+".", Normal)
	}
	if len(gpus) > 0 {
		var rows [][]string
		for i, state := range gpus {
			var remarks []string
			for _, n := range overview.StateNotes(state) {
				remarks = append(remarks, n.About+n.Text)
			}
			rows = append(rows, []string{node.Status.Node.GPUs[i].Name, cluster.ModeText(state.HardwareMode), strings.Join(remarks, "; ")})
		}
		p.Blank()
		p.Table([]string{"GPU", "MODE", "REMARKS"}, rows)
	}
	if unread.Message != "" {
		p.Unread([]text.Unread{unread})
	}
}

// namedBy says what names the desired profile.
func namedBy(n cluster.Progress) string {
	switch n.Desired.Source {
	case v1beta1.FromLabel:
		return ", named by the node's label " + n.Label
	case v1beta1.FromSpec:
		return ", named by the GPUNode's spec.profileName"
	case v1beta1.FromPlan:
		return ", given by PartitionPlan " + n.Desired.PlanName
	case v1beta1.FromDefault:
		return ", which is for nodes of which nobody says otherwise"
	}
	return ""
}

// DrawProfiles writes profiles as a table. hidden is the number of those that are left out.
func DrawProfiles(p *Page, profiles []cluster.Profile, hidden int, unread ...text.Unread) {
	var rows [][]string
	for i := range profiles {
		f := &profiles[i]
		rows = append(rows, []string{f.Name, count(f.Fitting), count(f.Desired), count(f.Applied), f.Says()})
	}
	switch {
	case len(rows) > 0:
		p.Table([]string{"PROFILE", "FITS", "WANTED BY", "FOLLOWED BY", "WHAT IT SAYS"}, rows)
	case hidden == 0:
		p.Wrap("", "There are no PartitionProfiles.", Normal)
	}
	p.hidden(hidden, "profile")
	p.Unread(unread)
}

// hidden says how many rows are left out.
func (p *Page) hidden(n int, what string) {
	if n > 0 {
		p.Wrap("", fmt.Sprintf("Not shown: %s for other GPUs; --all shows them.", text.Count(n, what)), Normal)
	}
}

// DrawClasses writes classes as a table. hidden is the number of those that are left out.
func DrawClasses(p *Page, classes []cluster.Class, hidden int) {
	var rows [][]string
	for _, c := range classes {
		rows = append(rows, []string{c.Name, fmt.Sprint(c.GPUCount), cmp.Or(c.ExtendedResourceName, "-"), cmp.Or(strings.Join(c.Devices, ", "), "-")})
	}
	switch {
	case len(rows) > 0:
		p.Table([]string{"CLASS", "GPUS", "EXTENDED RESOURCE", "GIVES"}, rows)
	case hidden == 0:
		p.Wrap("", "There are no DeviceClasses of Tranche.", Normal)
	}
	p.hidden(hidden, "class")
}

func count(nodes []string) string {
	if len(nodes) == 0 {
		return "-"
	}
	return text.Count(len(nodes), "node")
}

// DrawSwitches writes a history as a table, below the switch under way.
func DrawSwitches(p *Page, n *v1beta1.GPUNode, now time.Time) {
	switch far := cluster.ProgressOf(n); {
	case far.Switching():
		p.Wrap("", fmt.Sprintf("%s, from %s to %s. %s", n.Name, cluster.ProfileName(far.Switch.From.ProfileName), cluster.ProfileName(far.Switch.To.ProfileName), far.Doings(now)), Normal)
		p.Blank()
	case far.State == v1beta1.Failed:
		p.Wrap("", n.Name+": "+far.Failure(now), Normal)
		p.Blank()
	}
	var rows [][]string
	for i := range n.Status.History {
		r := &n.Status.History[i]
		text := r.Reason
		if r.Message != "" {
			text = strings.TrimPrefix(text+": "+r.Message, ": ")
		}
		rows = append(rows, []string{r.StartTime.UTC().Format(time.DateTime), overview.Took(r), cmp.Or(r.FromProfileName, "-"), cmp.Or(r.ToProfileName, "-"),
			string(r.Result), strconv.Itoa(int(r.EvictedPodCount)), text})
	}
	if len(rows) > 0 {
		p.Table([]string{"STARTED (UTC)", "TOOK", "FROM", "TO", "RESULT", "EVICTED", "REASON"}, rows)
	} else {
		p.Wrap("", fmt.Sprintf("No switch of %s is over yet.", n.Name), Normal)
	}
}
