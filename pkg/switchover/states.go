package switchover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// lookAgain is how often a state looks at what no watch tells: slices, pods that were
// asked to leave, room in the budget that another node has given back.
const (
	lookAtSlices = time.Second
	lookAtPods   = 2 * time.Second
	lookAtBudget = 30 * time.Second
)

func (t *turn) planning() {
	a := t.answer(v1alpha1.Planning)
	switch {
	case a == nil:
		if t.late() {
			t.fail(v1alpha1.ResultFailed, ReasonPluginSilent, t.silentText("say what has to change"))
		}
	case a.Phase == v1alpha1.TaskPlanned:
		t.Status.Switch.Cards = changing(a)
		t.planned()
	default:
		t.fail(v1alpha1.ResultFailed, cmp.Or(a.Reason, v1alpha1.ReasonProfileDoesNotFit), a.Message)
	}
}

// planned goes on with a plan.
func (t *turn) planned() {
	switch {
	case len(t.Status.Switch.Cards) == 0:
		t.enter(v1alpha1.Applying)
	case t.Granted:
		t.taint()
	case t.Status.State != v1alpha1.Waiting:
		t.enter(v1alpha1.Waiting)
	}
	if t.Status.State == v1alpha1.Waiting {
		t.wake(t.Now.Add(lookAtBudget))
	}
}

func (t *turn) waiting() {
	// The plan may be another by now: pods come and go.
	if a := t.answer(v1alpha1.Planning); a != nil && a.Phase == v1alpha1.TaskPlanned {
		t.Status.Switch.Cards = changing(a)
	}
	t.planned()
}

// taint begins what others notice; the wait for their turn does not count.
func (t *turn) taint() {
	sw := t.Status.Switch
	sw.Started.Time = t.Now
	if *sw.Policy.PauseClients {
		sw.Paused = t.Pausable
	}
	t.enter(v1alpha1.Tainted)
}

// changing are the cards of a plan.
func changing(plan *v1alpha1.Task) []string {
	cards := make([]string, 0, len(plan.Changes))
	for i := range plan.Changes {
		cards = append(cards, plan.Changes[i].Card)
	}
	slices.Sort(cards)
	return cards
}

func (t *turn) tainted() {
	switch {
	case !t.Tainted:
		if t.late() {
			t.stop(ReasonTaintFailed, "the cards could not be kept from new pods: "+cmp.Or(t.Trouble, "the API server did not answer"))
		}
		t.wake(t.Now.Add(lookAtPods))
	case len(t.inTheWay()) > 0:
		t.keepOffNode()
		t.enter(v1alpha1.Draining)
	default:
		t.proceed()
	}
}

func (t *turn) draining() {
	sw := t.Status.Switch
	left := t.inTheWay()
	if len(left) == 0 && t.Tainted {
		t.proceed()
		return
	}
	if t.late() {
		t.stop(ReasonDrainDeadline, fmt.Sprintf("not all pods left the cards within %s: %s", sw.Deadline.Sub(sw.Since.Time), list(left)))
		return
	}
	if t.keepOffNode() {
		t.wake(t.Now)
		return // Nobody is evicted before the taint is there.
	}
	// Without the taints they would come back; without the plan nobody knows who may
	// stay, and a plugin that has lost it makes it again.
	t.Evict = t.Tainted && len(t.Holders) > 0 && (t.answer(v1alpha1.Planning) != nil || t.rebootNeeded())
	t.Force = sw.Policy.AfterDeadline == v1alpha1.Force && !t.Now.Before(t.drainedBy())
	t.wake(t.Now.Add(lookAtPods))
	if !t.Force {
		t.wake(t.drainedBy())
	}
}

// keepOffNode has the whole node tainted where it must be, and tells whether that is
// new. The scheduler looks at the taints of devices only when it gives them to a claim:
// a pod whose claim has them already comes to them by any taint, and takes the claim
// over before the pod that leaves has given it up.
func (t *turn) keepOffNode() bool {
	sw := t.Status.Switch
	if sw.NodeTaint || !slices.ContainsFunc(t.Holders, func(h Holder) bool { return h.Outlives && h.Pod != nil }) {
		return false
	}
	sw.NodeTaint = true
	return true
}

// drainedBy is when pods should have left by themselves.
func (t *turn) drainedBy() time.Time {
	sw := t.Status.Switch
	return sw.Since.Add(sw.Policy.DrainDeadline.Duration)
}

// proceed changes the cards as soon as the taints have had their effect.
func (t *turn) proceed() {
	if settled := t.Status.Switch.Since.Add(t.Deadlines.Settle); t.Now.Before(settled) {
		t.wake(settled)
		return
	}
	if t.rebootNeeded() {
		t.enter(v1alpha1.Rebooting)
		return
	}
	t.enter(v1alpha1.Applying)
}

// inTheWay says who keeps the cards from being changed, in words.
func (t *turn) inTheWay() []string {
	sw := t.Status.Switch
	var left []string
	if t.Unseen != "" {
		left = append(left, "it is not known who is there: "+t.Unseen)
	}
	known := map[string]bool{}
	for i := range t.Holders {
		left = append(left, t.Holders[i].text(t.Now))
		for _, device := range t.Holders[i].Devices {
			known[device] = true
		}
	}
	keeps := t.keeps()
	for i := range t.node.Cards {
		card := &t.node.Cards[i]
		if !slices.Contains(sw.Cards, card.Name) {
			continue
		}
		for _, device := range card.Held {
			if !known[device] && !keeps[device] {
				left = append(left, fmt.Sprintf("%s is still held on the node, for a claim that is being released or whose pod is gone", device))
			}
		}
	}
	if t.Now.Before(sw.Since.Add(t.Deadlines.Clients)) {
		for _, pod := range t.Clients {
			left = append(left, fmt.Sprintf("pod %s is a paused client that has not ended yet", pod))
		}
	}
	return left
}

// keeps are the devices whose holders need not leave: what the plan says, and none
// where the node is going to be rebooted.
func (t *turn) keeps() map[string]bool { return keptDevices(t.Status.Switch, t.node) }

func keptDevices(sw *v1alpha1.Switch, node *v1alpha1.NodeReport) map[string]bool {
	keeps := map[string]bool{}
	if sw == nil || node == nil || node.Task == nil || node.Task.Switch != sw.ID || node.Task.Phase != v1alpha1.TaskPlanned {
		return keeps
	}
	for i := range node.Task.Changes {
		for _, device := range node.Task.Changes[i].Keeps {
			keeps[device] = true
		}
	}
	return keeps
}

func (t *turn) applying() {
	sw := t.Status.Switch
	a := t.answer(v1alpha1.Applying)
	switch {
	case a == nil:
		if t.late() {
			t.rollBack(ReasonPluginSilent, t.silentText("change the cards"))
		}
	case a.Phase == v1alpha1.TaskDone:
		t.done()
	case a.Phase == v1alpha1.TaskRebootRequired && sw.Policy.Reboot == v1alpha1.RebootAllowed && len(sw.Cards) > 0:
		// The node goes down, so all of its cards must be free.
		sw.Cards = t.allCards()
		t.enter(v1alpha1.Tainted)
	case a.Phase == v1alpha1.TaskRebootRequired:
		t.rollBack(ReasonRebootRequired, a.Message)
	default:
		t.rollBack(cmp.Or(a.Reason, v1alpha1.ReasonHardwareFailed), a.Message)
	}
}

func (t *turn) rebooting() {
	a := t.answer(v1alpha1.Applying, v1alpha1.Rebooting)
	switch {
	case a != nil && a.Phase == v1alpha1.TaskDone:
		t.done()
	case a != nil && a.Phase == v1alpha1.TaskRebootRequired && a.State == v1alpha1.Rebooting:
		t.rollBack(ReasonRebootRequired, "after the reboot the cards still ask for one: "+a.Message)
	case a != nil && a.Phase == v1alpha1.TaskFailed:
		t.rollBack(cmp.Or(a.Reason, v1alpha1.ReasonHardwareFailed), a.Message)
	case t.late():
		t.rollBack(ReasonRebootFailed, t.silentText("come back from the reboot"))
	}
}

// done ends a switch whose plugin says that it is done, if node and API server agree
// already: they do most of the time, and the state in between would be written for
// nobody.
func (t *turn) done() {
	if t.differs(t.Status.Switch.To.Hash) == "" {
		t.succeed()
		return
	}
	t.enter(v1alpha1.Verifying)
	t.wake(t.Now)
}

func (t *turn) verifying() {
	sw := t.Status.Switch
	a := t.answer(v1alpha1.Applying, v1alpha1.Rebooting)
	differs := t.differs(sw.To.Hash)
	switch {
	case a != nil && a.Phase == v1alpha1.TaskFailed:
		t.rollBack(cmp.Or(a.Reason, v1alpha1.ReasonHardwareFailed), a.Message)
	case a != nil && a.Phase == v1alpha1.TaskDone && differs == "":
		t.succeed()
	case t.late():
		t.rollBack(ReasonNotVerified, cmp.Or(differs, t.silentText("say that the change is done")))
	default:
		t.wake(t.Now.Add(lookAtSlices))
	}
}

// differs says what is not yet as it should be for the node to follow a wish, as far
// as node and API server tell; empty: nothing.
func (t *turn) differs(hash string) string {
	if t.node.Applied != hash {
		return fmt.Sprintf("the node's plugin reports that it follows another profile (hash %s, not %s)", cmp.Or(t.node.Applied, "none"), hash)
	}
	return t.Differs
}

func (t *turn) rollingBack() {
	sw := t.Status.Switch
	a := t.answer(v1alpha1.RollingBack)
	switch {
	case a != nil && a.Phase == v1alpha1.TaskDone && t.differs(sw.From.Hash) == "":
		t.fail(v1alpha1.ResultRolledBack, sw.Reason, sw.Message)
	case a != nil && a.Phase != v1alpha1.TaskDone:
		t.fail(v1alpha1.ResultFailed, ReasonRollbackFailed, t.notPutBack(a.Message))
	case t.late() && a == nil:
		t.fail(v1alpha1.ResultFailed, ReasonRollbackFailed, t.notPutBack(t.silentText("put back what was")))
	case t.late():
		t.fail(v1alpha1.ResultFailed, ReasonRollbackFailed, t.notPutBack(t.differs(sw.From.Hash)))
	default:
		t.wake(t.Now.Add(lookAtSlices))
	}
}

func (t *turn) notPutBack(why string) string {
	sw := t.Status.Switch
	return fmt.Sprintf("%s; and what was before (%s) could not be put back: %s", strings.TrimSuffix(sw.Message, "."), profileText(sw.From.Profile), why)
}

// allCards are the names of the node's cards.
func (t *turn) allCards() []string {
	names := make([]string, 0, len(t.node.Cards))
	for i := range t.node.Cards {
		names = append(names, t.node.Cards[i].Name)
	}
	slices.Sort(names)
	return names
}
