package why

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
)

// addSwitch explains the role of the node's profile if the node cannot serve the pod.
func (c *world) addSwitch(n *Node) {
	n.Profile = c.Progress(n.Name)
	if n.Verdict == Fits {
		return
	}
	profile, keptOff := n.taintedFor()
	n.switching = keptOff
	say := func(text string) { n.Reasons = append(n.Reasons, text) }
	switch far := n.Profile; {
	case far == nil || (keptOff && !far.Switching()):
		if keptOff {
			say(fmt.Sprintf("the node is being switched to %s; its GPUs are available again when the switch ends.", cluster.TaintProfile(profile)))
		}
	case far.Switching():
		withheld := c.withheldBySwitch(n.Name)
		missing := n.Verdict == Unusable || len(withheld) > 0 && slices.Contains([]Verdict{Lacking, Full, Together, Never}, n.Verdict)
		n.switching = n.switching || far.State != v1alpha1.Planning && far.State != v1alpha1.Waiting && missing
		say(c.switchText(n))
		if n.switching && len(withheld) > 0 {
			say(fmt.Sprintf("until then the plugin publishes no free device of %s, because a claim tolerates the taint of the switch.", text.List(withheld, maxNames)))
		}
	case far.State == v1alpha1.Failed:
		say("the last switch of the node: " + far.Failure(c.in.Now))
	case n.Verdict == Unusable && far.Conflict != "":
		say(far.Conflict + ".")
	}
}

// switchText describes a switch that is under way, and its deadline.
func (c *world) switchText(n *Node) string {
	far := n.Profile
	to := cluster.TaintProfile(far.To)
	if !n.switching {
		return fmt.Sprintf("a switch of the node to %s is planned (%s); it may offer other devices afterwards.", to, far.During(c.in.Now))
	}
	said := fmt.Sprintf("the node is being switched to %s (%s); its GPUs are available again when the switch ends", to, far.During(c.in.Now))
	if far.State == v1alpha1.RollingBack {
		said = fmt.Sprintf("the node is being rolled back, because %s could not be applied (%s); its GPUs are available again when the switch ends", to, far.During(c.in.Now))
	}
	if far.Deadline != nil {
		said += fmt.Sprintf(", and this step ends at %s at the latest", text.Clock(*far.Deadline))
	}
	return said + "."
}

// withheldBySwitch are the GPUs of a node whose free devices a running switch withholds.
func (c *world) withheldBySwitch(node string) []string {
	for i := range c.in.GPUNodes {
		n := &c.in.GPUNodes[i]
		if n.Name == node && n.Status.OrdersTaints() && n.Status.Switch.Withhold {
			return n.Status.Switch.GPUs
		}
	}
	return nil
}

// taintedFor tells whether taints of a switch keep the pod from the node or from
// GPUs of it, and names the profile that the node is switched to.
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

// unpublished are nodes that publish no GPUs now because they are being switched.
func (c *world) unpublished(shown []Node) []Node {
	var out []Node
	for i := range c.in.GPUNodes {
		name := c.in.GPUNodes[i].Name
		far := c.Progress(name)
		if !far.Switching() || slices.ContainsFunc(shown, func(n Node) bool { return n.Name == name }) {
			continue
		}
		n := Node{Name: name, Verdict: Unusable}
		c.addSwitch(&n)
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// remedySwitch adds what a person can do about switches.
func (e *Explanation) remedySwitch() {
	for _, n := range e.Nodes {
		if n.switching {
			e.remedy(fmt.Sprintf("wait until the switch of %s ends. To see its progress:", n.Name), "kubectl tranche switches "+n.Name)
			break
		}
	}
	for _, n := range e.Nodes {
		if n.Profile != nil && n.Profile.State == v1alpha1.Failed && n.Verdict != Fits {
			e.remedy(fmt.Sprintf("to see why %s could not be switched:", n.Name), "kubectl tranche switches "+n.Name)
			break
		}
	}
}

// remedyProfile is for nodes whose profile leaves out what the pod requests.
func (e *Explanation) remedyProfile() {
	for _, n := range e.Nodes {
		if n.Verdict == Lacking && n.Profile != nil && n.Profile.Restricts() && !n.Profile.Switching() {
			e.remedy(fmt.Sprintf("or have %s follow a profile that offers it (kubectl tranche profiles lists them):", n.Name), "kubectl tranche profile "+n.Name+" PROFILE --wait")
			break
		}
	}
}

// ofTheSwitch says that a GPU of a running pod is being switched.
func (c *world) ofTheSwitch(holds []Holding) string {
	for _, h := range holds {
		gpuID := cluster.GPUOf(h.Device)
		if far := c.Progress(names.NodeOfPool(h.Pool)); far != nil && far.KeepsOff(gpuID) {
			return fmt.Sprintf("Its GPU %s is being switched to %s (%s); the pod is evicted unless its device is kept.",
				gpuID, cluster.TaintProfile(far.To), far.During(c.in.Now))
		}
	}
	return ""
}
