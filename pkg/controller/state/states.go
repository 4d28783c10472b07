package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/text"
)

// How often states check at first what is not watched: slices, and pods that are leaving. The
// waits grow with the time in the state, up to seldom.
const (
	lookAtSlices = time.Second
	lookAtPods   = 2 * time.Second
	seldom       = 15 * time.Second
)

// look asks to be called again to check what is not watched.
func (e *evaluation) look(soon time.Duration) {
	e.wake(e.Now.Add(min(max(soon, e.Now.Sub(e.Status.Switch.StateChangeTime.Time)/8), seldom)))
}

func (e *evaluation) planning() {
	a := e.answer(v1beta1.Planning)
	switch {
	case a == nil:
		if e.late() {
			e.fail(v1beta1.ResultNotApplied, names.ReasonPluginSilent, e.silentText("say what has to change"))
		}
	case a.Phase == v1beta1.TaskPlanned:
		e.planned(a)
	default:
		e.fail(v1beta1.ResultNotApplied, cmp.Or(a.Reason, names.ReasonProfileDoesNotFit), a.Message)
	}
}

// planned continues with the first report. Nothing is changed before the rollout admits the node;
// taints of an earlier switch stay until then.
func (e *evaluation) planned(report *v1beta1.Task) {
	sw := e.Status.Switch
	if wrong := e.invalid(report); wrong != "" {
		e.fail(v1beta1.ResultNotApplied, names.ReasonInvalidReport, wrong)
		return
	}
	switch {
	case !e.Admitted:
		if e.Status.State != v1beta1.Waiting {
			e.enter(v1beta1.Waiting)
			e.Wake = time.Time{}
		}
	case len(report.Changes) == 0:
		sw.GPUs, sw.ShrinkingGPUs, sw.Withhold, sw.PausedLabels, sw.NodeTaintRequired = nil, nil, false, nil, false
		e.enter(v1beta1.Applying)
	default:
		e.taint(report)
	}
}

func (e *evaluation) waiting() {
	if a := e.answer(v1beta1.Planning); a != nil && a.Phase == v1beta1.TaskPlanned {
		e.planned(a)
		return
	}
	// The plugin has lost its report and makes a new one.
	e.enter(v1beta1.Planning)
}

// taint begins to disturb pods. The wait for other nodes does not count as part of the switch.
func (e *evaluation) taint(report *v1beta1.Task) {
	sw := e.Status.Switch
	sw.StartTime.Time = e.Now
	if *sw.Policy.PauseMonitoring {
		sw.PausedLabels = merged(sw.PausedLabels, e.Pausable)
	} else {
		sw.PausedLabels = nil
	}
	gpus := changing(report)
	e.requestTaints(gpus, shrinking(report.ShrinkingGPUs, gpus))
}

// merged returns the labels that an earlier switch has paused, and more.
func merged(paused, more map[string]string) map[string]string {
	if len(paused) == 0 {
		return more
	}
	out := maps.Clone(paused)
	maps.Copy(out, more)
	return out
}

// tainted waits for the taints and for the report that the plugin makes after them, when no new
// claims can get the GPUs. No pod is evicted before a dry run shows that all can be.
func (e *evaluation) tainted() {
	sw := e.Status.Switch
	report := reportOf(sw, e.node)
	switch {
	case report == nil, report.Phase == v1beta1.TaskPlanned && !publishedFor(sw, e.node):
		if e.late() {
			e.stop(names.ReasonPluginSilent, e.silentText("taint the devices that change and plan again"))
		}
		return
	case report.Phase != v1beta1.TaskPlanned:
		e.stop(cmp.Or(report.Reason, names.ReasonProfileDoesNotFit), report.Message)
		return
	}
	if wrong := e.invalid(report); wrong != "" {
		e.stop(names.ReasonInvalidReport, wrong)
		return
	}
	if gpus, shrinks := grown(sw, report); !sameSets(sw, gpus, shrinks) {
		e.requestTaints(gpus, shrinks)
		return
	}
	switch {
	case len(report.Changes) == 0 && !sw.RebootRequired:
		e.enter(v1beta1.Applying)
	case e.withhold():
	case e.node.PublishedTaints.Withheld && !sw.NodeTaintRequired && !e.late():
		sw.NodeTaintRequired = true
		e.wake(e.Now)
	case !e.Tainted, e.node.PublishedTaints.Withheld && !sw.NodeTaintRequired:
		if e.late() {
			e.stop(names.ReasonTaintFailed, "the node could not be tainted, or its monitoring pods could not be paused: "+cmp.Or(e.Trouble, "the API server did not answer"))
		}
		e.look(lookAtPods)
	case len(e.Blockers) > 0:
		e.look(lookAtPods)
		if !e.Now.Before(sw.StateChangeTime.Add(blockedPatience)) || e.late() {
			e.blocked(names.ReasonDrainBlocked, e.blockedText(), e.Blockers)
		}
	case e.Unseen != "":
		if e.late() {
			e.stop(names.ReasonTaintFailed, "it is not known who holds the GPUs: "+e.Unseen)
		}
		e.look(lookAtPods)
	case len(e.inTheWay()) > 0:
		e.keepOffNode()
		e.enter(v1beta1.Draining)
	default:
		e.proceed()
	}
}

func (e *evaluation) draining() {
	sw := e.Status.Switch
	left := e.inTheWay()
	if len(left) == 0 && e.Tainted {
		e.proceed()
		return
	}
	if e.late() {
		e.blocked(names.ReasonDrainDeadline, fmt.Sprintf("not all pods left the GPUs within %s: %s", sw.DeadlineTime.Sub(sw.StateChangeTime.Time), list(left)), e.stuck())
		return
	}
	if e.withhold() {
		return
	}
	if e.keepOffNode() {
		e.wake(e.Now)
		return // No pod is evicted before the taint is set.
	}
	// Without the taints pods would return; without the report it is not known which may stay.
	e.Evict = e.Tainted && len(e.Holders) > 0 && e.reportCurrent()
	e.Force = sw.Policy.AfterDeadline == v1beta1.Force && !e.Now.Before(e.drainedBy())
	e.look(lookAtPods)
	if !e.Force {
		e.wake(e.drainedBy())
	}
}

func (e *evaluation) reportCurrent() bool { return drainReport(e.Status.Switch, e.node) != nil }

// keepOffNode has the whole node tainted if device taints are not enough, and reports whether that
// is new. The scheduler checks device taints only when it allocates a claim: a replacement pod
// with the same, allocated claim would be scheduled in spite of them.
func (e *evaluation) keepOffNode() bool {
	sw := e.Status.Switch
	if sw.NodeTaintRequired || !slices.ContainsFunc(e.Holders, func(h drain.Holder) bool { return h.Outlives && h.Pod != nil }) {
		return false
	}
	sw.NodeTaintRequired = true
	return true
}

// withhold has the plugin publish only allocated devices of the GPUs if a claim tolerates the
// taint. It reports whether that is new; the plugin then reports the changes again.
func (e *evaluation) withhold() bool {
	sw := e.Status.Switch
	already := sw.Withhold || e.node.PublishedTaints != nil && e.node.PublishedTaints.Withheld
	if already || !slices.ContainsFunc(e.Holders, func(h drain.Holder) bool { return h.Tolerates && !h.Admin && h.Pod != nil }) {
		return false
	}
	sw.Withhold = true
	e.requestTaints(sw.GPUs, sw.ShrinkingGPUs)
	return true
}

func (e *evaluation) drainedBy() time.Time {
	sw := e.Status.Switch
	return sw.StateChangeTime.Add(sw.Policy.DrainDeadline.Duration)
}

// proceed changes the GPUs, or reboots the node if they change only then.
func (e *evaluation) proceed() {
	sw := e.Status.Switch
	if sw.RebootRequired {
		sw.RebootRequested = true
		e.enter(v1beta1.Rebooting)
		return
	}
	e.enter(v1beta1.Applying)
}

// inTheWay lists what keeps the GPUs from being changed.
func (e *evaluation) inTheWay() []string {
	sw := e.Status.Switch
	var left []string
	if e.Unseen != "" {
		left = append(left, "it is not known who is there: "+e.Unseen)
	}
	if !e.reportCurrent() {
		left = append(left, "the node's plugin does not report the taints and the plan that it reported before")
	}
	known := map[string]bool{}
	for i := range e.Holders {
		left = append(left, e.Holders[i].Text(e.Now))
		for _, device := range e.Holders[i].Devices {
			known[device] = true
		}
	}
	for _, device := range e.heldOnNode() {
		if !known[device] {
			left = append(left, fmt.Sprintf("%s is %s", device, heldText))
		}
	}
	if e.Now.Before(sw.StateChangeTime.Add(e.Deadlines.Monitoring)) {
		for _, pod := range e.Monitoring {
			left = append(left, fmt.Sprintf("pod %s is a paused monitoring pod that has not ended yet", pod))
		}
	}
	return left
}

// heldText describes a device that no known pod holds.
const heldText = "still held on the node, for a claim that is being released or whose pod is gone"

// heldOnNode returns the devices to drain that claims hold, by the node's report.
func (e *evaluation) heldOnNode() []string {
	gpus, keeps := Drained(e.Status.Switch, e.node)
	var held []string
	for i := range e.node.GPUs {
		if !slices.Contains(gpus, e.node.GPUs[i].Name) {
			continue
		}
		for _, device := range e.node.GPUs[i].HeldDevices {
			if !keeps[device] {
				held = append(held, device)
			}
		}
	}
	return held
}

func (e *evaluation) applying() {
	sw := e.Status.Switch
	a := e.answer(v1beta1.Applying)
	switch {
	case a == nil:
		if e.late() {
			e.rollBack(names.ReasonPluginSilent, e.silentText("change the GPUs"))
		}
	case a.Phase == v1beta1.TaskDone:
		e.done()
	case a.Phase == v1beta1.TaskRebootRequired && sw.Policy.Reboot == v1beta1.RebootIfRequired && len(sw.GPUs) > 0:
		// The node reboots, so all of its GPUs must be drained.
		sw.RebootRequired = true
		e.requestTaints(gpuNames(e.node), nil)
	case a.Phase == v1beta1.TaskRebootRequired:
		e.rollBack(names.ReasonRebootRequired, a.Message)
	default:
		e.rollBack(cmp.Or(a.Reason, names.ReasonHardwareFailed), a.Message)
	}
}

func (e *evaluation) rebooting() {
	a := e.answer(v1beta1.Applying, v1beta1.Rebooting)
	switch {
	case a != nil && a.Phase == v1beta1.TaskDone:
		e.done()
	case a != nil && a.Phase == v1beta1.TaskRebootRequired && a.State == v1beta1.Rebooting:
		e.rollBack(names.ReasonRebootRequired, "the GPUs still need a reboot after one: "+a.Message)
	case a != nil && a.Phase == v1beta1.TaskFailed:
		e.rollBack(cmp.Or(a.Reason, names.ReasonHardwareFailed), a.Message)
	case e.late():
		e.rollBack(names.ReasonRebootFailed, e.silentText("come back from the reboot"))
	}
}

// done ends a switch when the plugin reports that it is done. If node and API server agree
// already, as they mostly do, Verifying is skipped. Free devices that were withheld are those of
// the new profile now: they are published, so that claims on devices that are gone can be told
// from claims on new ones.
func (e *evaluation) done() {
	if sw := e.Status.Switch; sw.Withhold {
		sw.Withhold = false
		sw.TaintGeneration++
		e.enter(v1beta1.Verifying)
		e.wake(e.Now)
		return
	}
	if e.differs(e.Status.Switch.To.Hash) == "" && len(e.Holders) == 0 {
		e.succeed()
		return
	}
	e.enter(v1beta1.Verifying)
	e.wake(e.Now)
}

func (e *evaluation) verifying() {
	sw := e.Status.Switch
	a := e.answer(v1beta1.Applying, v1beta1.Rebooting)
	differs := e.differs(sw.To.Hash)
	switch {
	case a != nil && a.Phase == v1beta1.TaskFailed:
		e.rollBack(cmp.Or(a.Reason, names.ReasonHardwareFailed), a.Message)
	case a != nil && a.Phase == v1beta1.TaskDone && differs == "" && (len(e.Holders) == 0 || e.late()):
		// A rollback would not restore the device of a pod that does not leave.
		e.succeed()
	case a != nil && a.Phase == v1beta1.TaskDone && differs == "":
		e.Evict = true
		e.look(lookAtPods)
	case e.late():
		e.rollBack(names.ReasonNotVerified, cmp.Or(differs, e.silentText("say that the change is done")))
	default:
		e.look(lookAtSlices)
	}
}

// differs says how the node's report or the ResourceSlices differ from the applied profile,
// empty if they do not.
func (e *evaluation) differs(hash string) string {
	if e.node.AppliedHash != hash {
		return fmt.Sprintf("the node's plugin reports another applied profile (hash %s, not %s)", cmp.Or(e.node.AppliedHash, "none"), hash)
	}
	return e.Differs
}

func (e *evaluation) rollingBack() {
	sw := e.Status.Switch
	a := e.answer(v1beta1.RollingBack)
	switch {
	case a != nil && a.Phase == v1beta1.TaskDone && e.differs(sw.From.Hash) == "":
		e.fail(v1beta1.ResultRolledBack, sw.Reason, sw.Message)
	case a != nil && a.Phase != v1beta1.TaskDone:
		e.fail(v1beta1.ResultRollbackFailed, names.ReasonRollbackFailed, e.rollbackFailedText(a.Message))
	case e.late() && a == nil:
		e.fail(v1beta1.ResultRollbackFailed, names.ReasonRollbackFailed, e.rollbackFailedText(e.silentText("restore the previous profile")))
	case e.late():
		e.fail(v1beta1.ResultRollbackFailed, names.ReasonRollbackFailed, e.rollbackFailedText(e.differs(sw.From.Hash)))
	default:
		e.look(lookAtSlices)
	}
}

func (e *evaluation) rollbackFailedText(why string) string {
	sw := e.Status.Switch
	return fmt.Sprintf("%s; and the rollback to %s failed: %s", strings.TrimSuffix(sw.Message, "."), text.Profile(sw.From.ProfileName), why)
}
