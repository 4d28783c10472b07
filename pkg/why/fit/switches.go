package fit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
)

// addSwitch explains the role of the node's profile if the node cannot serve the pod.
func (m *Model) addSwitch(n *Node) {
	n.Profile = m.Progress(n.Name)
	if n.Verdict == Fits {
		return
	}
	say := func(text string) { n.Reasons = append(n.Reasons, text) }
	to, switching := n.taintedFor()
	switch far := n.Profile; {
	case far != nil && far.Switching():
		withheld := m.withheldBySwitch(n.Name)
		missing := n.Verdict == Unusable || len(withheld) > 0 && slices.Contains([]Verdict{Lacking, Full, NotTogether, Never}, n.Verdict)
		switching = switching || far.State != v1beta1.Planning && far.State != v1beta1.Waiting && missing
		say(m.switchText(far, switching))
		if switching && len(withheld) > 0 {
			say(fmt.Sprintf("until then the plugin publishes no free device of %s, because a claim tolerates the taint of the switch.", text.List(withheld, maxNames)))
		}
	case switching:
		say(fmt.Sprintf("the node is being switched to %s; its GPUs are available again when the switch ends.", text.Profile(to)))
	case far == nil:
	case far.State == v1beta1.Failed:
		say("the last switch of the node: " + far.Failure(m.objects.Now))
	case n.Verdict == Unusable && far.Conflict != "":
		say(far.Conflict + ".")
	}
	if switching && !n.excluded {
		n.Verdict = Switching
	}
}

// switchText describes a switch in progress, and its deadline. away is true if it keeps the pod off the
// node.
func (m *Model) switchText(far *cluster.Progress, away bool) string {
	to, during := text.Profile(far.Switch.To.ProfileName), far.During(m.objects.Now)
	if !away {
		return fmt.Sprintf("a switch of the node to %s is planned (%s); it may offer other devices afterwards.", to, during)
	}
	said := fmt.Sprintf("the node is being switched to %s (%s)", to, during)
	if far.State == v1beta1.RollingBack {
		said = fmt.Sprintf("the node is being rolled back, because %s could not be applied (%s)", to, during)
	}
	said += "; its GPUs are available again when the switch ends"
	if !far.Switch.DeadlineTime.IsZero() {
		said += fmt.Sprintf(", and this step ends at %s at the latest", text.Clock(far.Switch.DeadlineTime.Time))
	}
	return said + "."
}

// withheldBySwitch returns the GPUs of a node whose free devices a switch in progress withholds.
func (m *Model) withheldBySwitch(node string) []string {
	for i := range m.objects.GPUNodes {
		n := &m.objects.GPUNodes[i]
		if n.Name == node && n.Status.RequestsTaints() && n.Status.Switch.Withhold {
			return n.Status.Switch.GPUs
		}
	}
	return nil
}

// taintedFor reports whether taints of a switch keep the pod off the node or its GPUs, and returns the
// profile that the node is switched to.
func (n *Node) taintedFor() (profile string, yes bool) {
	for _, r := range n.Requests {
		if r.switchTo != nil && r.Verdict != Fits {
			return *r.switchTo, true
		}
	}
	if n.switchTo != nil {
		return *n.switchTo, true
	}
	return "", false
}

// unpublished returns nodes that publish no GPUs because they are being switched.
func (m *Model) unpublished(shown []Node) (out []Node) {
	for i := range m.objects.GPUNodes {
		name := m.objects.GPUNodes[i].Name
		far := m.Progress(name)
		if !far.Switching() || slices.ContainsFunc(shown, func(n Node) bool { return n.Name == name }) {
			continue
		}
		n := Node{Name: name, Verdict: Unusable}
		m.addSwitch(&n)
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
