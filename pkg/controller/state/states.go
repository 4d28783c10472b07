package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

// How often states check at first what is not watched: slices, and pods that are leaving. The
// waits grow with the time in the state, up to seldom.
const (
	lookAtSlices = time.Second
	lookAtPods   = 2 * time.Second
	seldom       = 15 * time.Second
)

// look asks to be called again to check what is not watched.
func (t *turn) look(soon time.Duration) {
	t.wake(t.Now.Add(min(max(soon, t.Now.Sub(t.Status.Switch.Since.Time)/8), seldom)))
}

func (t *turn) planning() {
	a := t.answer(v1alpha1.Planning)
	switch {
	case a == nil:
		if t.late() {
			t.fail(v1alpha1.ResultFailed, names.ReasonPluginSilent, t.silentText("say what has to change"))
		}
	case a.Phase == v1alpha1.TaskPlanned:
		t.planned(a)
	default:
		t.fail(v1alpha1.ResultFailed, cmp.Or(a.Reason, names.ReasonProfileDoesNotFit), a.Message)
	}
}

// planned continues with the first plan. Nothing is changed before the rollout admits the node;
// taints of an earlier switch stay until then.
func (t *turn) planned(plan *v1alpha1.Task) {
	sw := t.Status.Switch
	if wrong := t.invalid(plan); wrong != "" {
		t.fail(v1alpha1.ResultFailed, names.ReasonInvalidPlan, wrong)
		return
	}
	switch {
	case !t.Admitted:
		if t.Status.State != v1alpha1.Waiting {
			t.enter(v1alpha1.Waiting)
			t.Wake = time.Time{}
		}
	case len(plan.Changes) == 0:
		sw.GPUs, sw.Shrinking, sw.Withhold, sw.Paused, sw.NodeTaint = nil, nil, false, nil, false
		t.enter(v1alpha1.Applying)
	default:
		t.taint(plan)
	}
}

func (t *turn) waiting() {
	if a := t.answer(v1alpha1.Planning); a != nil && a.Phase == v1alpha1.TaskPlanned {
		t.planned(a)
		return
	}
	// The plugin has lost its plan and makes a new one.
	t.enter(v1alpha1.Planning)
}

// taint begins to disturb pods. The wait for other nodes does not count as part of the switch.
func (t *turn) taint(plan *v1alpha1.Task) {
	sw := t.Status.Switch
	sw.Started.Time = t.Now
	if *sw.Policy.PauseClients {
		sw.Paused = merged(sw.Paused, t.Pausable)
	} else {
		sw.Paused = nil
	}
	gpus := changing(plan)
	t.order(gpus, shrinking(plan.Shrinking, gpus))
}

// merged are the labels that an earlier switch has paused, and more.
func merged(paused, more map[string]string) map[string]string {
	if len(paused) == 0 {
		return more
	}
	out := maps.Clone(paused)
	maps.Copy(out, more)
	return out
}

// tainted waits for the taints and for the plan that the plugin makes after them, when no new
// claims can get the GPUs. No pod is evicted before a dry run shows that all can be.
func (t *turn) tainted() {
	sw := t.Status.Switch
	plan := planOf(sw, t.node)
	switch {
	case plan == nil, plan.Phase == v1alpha1.TaskPlanned && !publishedFor(sw, t.node):
		if t.late() {
			t.stop(names.ReasonPluginSilent, t.silentText("taint the devices that change and plan again"))
		}
		return
	case plan.Phase != v1alpha1.TaskPlanned:
		t.stop(cmp.Or(plan.Reason, names.ReasonProfileDoesNotFit), plan.Message)
		return
	}
	if wrong := t.invalid(plan); wrong != "" {
		t.stop(names.ReasonInvalidPlan, wrong)
		return
	}
	if gpus, shrinks := grown(sw, plan); !sameSets(sw, gpus, shrinks) {
		t.order(gpus, shrinks)
		return
	}
	switch {
	case len(plan.Changes) == 0 && !sw.RebootRequired:
		t.enter(v1alpha1.Applying)
	case t.withhold():
	case t.node.Taints.Withheld && !sw.NodeTaint && !t.late():
		sw.NodeTaint = true
		t.wake(t.Now)
	case !t.Tainted, t.node.Taints.Withheld && !sw.NodeTaint:
		if t.late() {
			t.stop(names.ReasonTaintFailed, "the node could not be tainted, or its clients could not be paused: "+cmp.Or(t.Trouble, "the API server did not answer"))
		}
		t.look(lookAtPods)
	case len(t.Blockers) > 0:
		t.look(lookAtPods)
		if !t.Now.Before(sw.Since.Add(blockedPatience)) || t.late() {
			t.blocked(names.ReasonDrainBlocked, t.blockedText(), t.Blockers)
		}
	case t.Unseen != "":
		if t.late() {
			t.stop(names.ReasonTaintFailed, "it is not known who holds the GPUs: "+t.Unseen)
		}
		t.look(lookAtPods)
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
		t.blocked(names.ReasonDrainDeadline, fmt.Sprintf("not all pods left the GPUs within %s: %s", sw.Deadline.Sub(sw.Since.Time), list(left)), t.stuck())
		return
	}
	if t.withhold() {
		return
	}
	if t.keepOffNode() {
		t.wake(t.Now)
		return // No pod is evicted before the taint is set.
	}
	// Without the taints pods would return; without the plan it is not known which may stay.
	t.Evict = t.Tainted && len(t.Holders) > 0 && t.planStands()
	t.Force = sw.Policy.AfterDeadline == v1alpha1.Force && !t.Now.Before(t.drainedBy())
	t.look(lookAtPods)
	if !t.Force {
		t.wake(t.drainedBy())
	}
}

// planStands is PlanStands for the current status.
func (t *turn) planStands() bool { return drainPlan(t.Status.Switch, t.node) != nil }

// keepOffNode has the whole node tainted if device taints are not enough, and reports whether that
// is new. The scheduler checks device taints only when it allocates a claim: a replacement pod
// with the same, allocated claim would be scheduled in spite of them. Claims with admin access
// usually tolerate device taints.
func (t *turn) keepOffNode() bool {
	sw := t.Status.Switch
	if sw.NodeTaint || !slices.ContainsFunc(t.Holders, func(h drain.Holder) bool { return (h.Outlives || h.Admin) && h.Pod != nil }) {
		return false
	}
	sw.NodeTaint = true
	return true
}

// withhold has the plugin publish only allocated devices of the GPUs if a claim tolerates the
// taint. It reports whether that is new; the plugin then makes a new plan.
func (t *turn) withhold() bool {
	sw := t.Status.Switch
	already := sw.Withhold || t.node.Taints != nil && t.node.Taints.Withheld
	if already || !slices.ContainsFunc(t.Holders, func(h drain.Holder) bool { return h.Tolerates && h.Pod != nil }) {
		return false
	}
	sw.Withhold = true
	t.order(sw.GPUs, sw.Shrinking)
	return true
}

// drainedBy is the drain deadline.
func (t *turn) drainedBy() time.Time {
	sw := t.Status.Switch
	return sw.Since.Add(sw.Policy.DrainDeadline.Duration)
}

// proceed changes the GPUs, or reboots the node if they change only then.
func (t *turn) proceed() {
	sw := t.Status.Switch
	if sw.RebootRequired {
		sw.Rebooted = true
		t.enter(v1alpha1.Rebooting)
		return
	}
	t.enter(v1alpha1.Applying)
}

// inTheWay lists what keeps the GPUs from being changed.
func (t *turn) inTheWay() []string {
	sw := t.Status.Switch
	var left []string
	if t.Unseen != "" {
		left = append(left, "it is not known who is there: "+t.Unseen)
	}
	if !t.planStands() {
		left = append(left, "the node's plugin does not report the taints and the plan that it reported before")
	}
	known := map[string]bool{}
	for i := range t.Holders {
		left = append(left, t.Holders[i].Text(t.Now))
		for _, device := range t.Holders[i].Devices {
			known[device] = true
		}
	}
	for _, device := range t.heldOnNode() {
		if !known[device] {
			left = append(left, fmt.Sprintf("%s is %s", device, heldText))
		}
	}
	if t.Now.Before(sw.Since.Add(t.Deadlines.Clients)) {
		for _, pod := range t.Clients {
			left = append(left, fmt.Sprintf("pod %s is a paused client that has not ended yet", pod))
		}
	}
	return left
}

// heldText describes a device that no known pod holds.
const heldText = "still held on the node, for a claim that is being released or whose pod is gone"

// heldOnNode are the devices to drain that claims hold, by the node's report.
func (t *turn) heldOnNode() []string {
	gpus, keeps := Drained(t.Status.Switch, t.node)
	var held []string
	for i := range t.node.GPUs {
		if !slices.Contains(gpus, t.node.GPUs[i].Name) {
			continue
		}
		for _, device := range t.node.GPUs[i].Held {
			if !keeps[device] {
				held = append(held, device)
			}
		}
	}
	return held
}

func (t *turn) applying() {
	sw := t.Status.Switch
	a := t.answer(v1alpha1.Applying)
	switch {
	case a == nil:
		if t.late() {
			t.rollBack(names.ReasonPluginSilent, t.silentText("change the GPUs"))
		}
	case a.Phase == v1alpha1.TaskDone:
		t.done()
	case a.Phase == v1alpha1.TaskRebootRequired && sw.Policy.Reboot == v1alpha1.RebootAllowed && len(sw.GPUs) > 0:
		// The node reboots, so all of its GPUs must be drained.
		sw.RebootRequired = true
		t.order(gpuNames(t.node), nil)
	case a.Phase == v1alpha1.TaskRebootRequired:
		t.rollBack(names.ReasonRebootRequired, a.Message)
	default:
		t.rollBack(cmp.Or(a.Reason, names.ReasonHardwareFailed), a.Message)
	}
}

func (t *turn) rebooting() {
	a := t.answer(v1alpha1.Applying, v1alpha1.Rebooting)
	switch {
	case a != nil && a.Phase == v1alpha1.TaskDone:
		t.done()
	case a != nil && a.Phase == v1alpha1.TaskRebootRequired && a.State == v1alpha1.Rebooting:
		t.rollBack(names.ReasonRebootRequired, "the GPUs still need a reboot after one: "+a.Message)
	case a != nil && a.Phase == v1alpha1.TaskFailed:
		t.rollBack(cmp.Or(a.Reason, names.ReasonHardwareFailed), a.Message)
	case t.late():
		t.rollBack(names.ReasonRebootFailed, t.silentText("come back from the reboot"))
	}
}

// done ends a switch when the plugin reports that it is done. If node and API server agree
// already, as they mostly do, Verifying is skipped. Free devices that were withheld are those of
// the new profile now: they are published, so that claims on devices that are gone can be told
// from claims on new ones.
func (t *turn) done() {
	if sw := t.Status.Switch; sw.Withhold {
		sw.Withhold = false
		sw.Order++
		t.enter(v1alpha1.Verifying)
		t.wake(t.Now)
		return
	}
	if t.differs(t.Status.Switch.To.Hash) == "" && len(t.Holders) == 0 {
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
		t.rollBack(cmp.Or(a.Reason, names.ReasonHardwareFailed), a.Message)
	case a != nil && a.Phase == v1alpha1.TaskDone && differs == "" && (len(t.Holders) == 0 || t.late()):
		// A rollback would not restore the device of a pod that does not leave.
		t.succeed()
	case a != nil && a.Phase == v1alpha1.TaskDone && differs == "":
		t.Evict = true
		t.look(lookAtPods)
	case t.late():
		t.rollBack(names.ReasonNotVerified, cmp.Or(differs, t.silentText("say that the change is done")))
	default:
		t.look(lookAtSlices)
	}
}

// differs says how the node's report or the ResourceSlices differ from the applied profile,
// empty if they do not.
func (t *turn) differs(hash string) string {
	if t.node.Applied != hash {
		return fmt.Sprintf("the node's plugin reports another applied profile (hash %s, not %s)", cmp.Or(t.node.Applied, "none"), hash)
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
		t.fail(v1alpha1.ResultFailed, names.ReasonRollbackFailed, t.rollbackFailedText(a.Message))
	case t.late() && a == nil:
		t.fail(v1alpha1.ResultFailed, names.ReasonRollbackFailed, t.rollbackFailedText(t.silentText("restore the previous profile")))
	case t.late():
		t.fail(v1alpha1.ResultFailed, names.ReasonRollbackFailed, t.rollbackFailedText(t.differs(sw.From.Hash)))
	default:
		t.look(lookAtSlices)
	}
}

func (t *turn) rollbackFailedText(why string) string {
	sw := t.Status.Switch
	return fmt.Sprintf("%s; and the rollback to %s failed: %s", strings.TrimSuffix(sw.Message, "."), ProfileText(sw.From.Profile), why)
}
