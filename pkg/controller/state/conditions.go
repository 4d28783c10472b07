package state

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// describe sets the conditions.
func (t *turn) describe(generation int64) {
	set := func(kind string, status bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: ReasonWord(reason), Message: text.Cut(message, mostMessage),
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(t.Now),
		}
		if status {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&t.Status.Conditions, c)
	}
	ready, reason, message := t.ready()
	set(names.ConditionReady, ready, reason, message)
	set(names.ConditionSwitching, t.switching(), string(t.Status.State), t.progress())
	if o := t.Choice.Overruled; o.Reason != "" {
		set(names.ConditionOverruled, true, o.Reason, o.Message)
	} else {
		set(names.ConditionOverruled, false, names.ReasonNone, "")
	}
	if p := t.Choice.Pending; p != nil {
		set(names.ConditionRolloutPending, true, p.Reason, p.Message)
	} else {
		meta.RemoveStatusCondition(&t.Status.Conditions, names.ConditionRolloutPending)
	}
	if t.conflict() {
		set(names.ConditionConflict, true, names.ReasonOtherOwner, t.conflictText())
	} else {
		set(names.ConditionConflict, false, names.ReasonNone, "")
	}
}

// reasonPattern is the pattern of reasons that the API server accepts in conditions. Reasons
// from the plugin can be anything, and a refused status would stop the switch.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// mostReason is the longest reason of an event. Those of conditions can be longer.
const mostReason = 128

// ReasonWord is the reason if conditions, events and metrics accept it, otherwise ReasonOther.
func ReasonWord(reason string) string {
	if len(reason) <= mostReason && reasonPattern.MatchString(reason) {
		return reason
	}
	return names.ReasonOther
}

// mostMessage is the longest message of a condition, in bytes.
const mostMessage = 4096

func (t *turn) conflictText() string {
	return fmt.Sprintf("other systems serve GPUs of the node, so Tranche does not change their modes and partitions: %s", strings.Join(t.node.Owners, "; "))
}

func (t *turn) switching() bool {
	return t.Status.Switch != nil && t.Status.State != v1alpha1.Failed && t.Status.State != v1alpha1.Idle
}

func (t *turn) ready() (bool, string, string) {
	sw := t.Status.Switch
	switch {
	case t.Status.State == v1alpha1.Failed:
		return false, sw.Reason, t.failedText()
	case t.switching():
		return false, names.ReasonSwitching, t.fromTo() + ": " + t.progress()
	case t.Status.Node == nil:
		return false, names.ReasonNoReport, "the node's plugin has not reported its GPUs yet; check that its pod is running"
	case t.conflict():
		return false, names.ReasonConflict, t.conflictText()
	case t.Choice.Missing != "", t.Choice.Keep == names.ReasonNodeNotFound:
		return false, t.Choice.Keep, t.Choice.Message + "; " + t.kept()
	case t.Choice.Keep != "":
		return t.keptUp(), t.Choice.Keep, t.Choice.Message + ": " + t.kept()
	case len(t.node.GPUs) == 0:
		return true, names.ReasonNoGPUs, "the node has no GPUs"
	}
	return true, names.ReasonApplied, t.appliedText()
}

// appliedText says what is applied, and what is pending or wrong.
func (t *turn) appliedText() string {
	texts := []string{"no profile is set, and GPUs are partitioned on demand"}
	if a := t.Status.Applied; a != nil && a.Profile != "" {
		texts[0] = fmt.Sprintf("%s is applied", ProfileText(a.Profile))
		if t.Choice.SetBy != "" {
			texts[0] += ", as set by " + t.Choice.SetBy
		}
	}
	for i := range t.node.GPUs {
		c := &t.node.GPUs[i]
		if c.Pending != "" {
			texts = append(texts, c.Name+": "+c.Pending)
		}
		if c.Problem != "" {
			texts = append(texts, c.Name+": "+c.Problem)
		}
	}
	return strings.Join(texts, "; ")
}

// kept says what the node keeps.
func (t *turn) kept() string {
	if t.Status.Applied == nil || t.Status.Applied.Profile == "" {
		return "the GPUs do not change"
	}
	if !t.keptUp() {
		return fmt.Sprintf("its GPUs differ from %s, which could not be restored", ProfileText(t.Status.Applied.Profile))
	}
	return fmt.Sprintf("it keeps %s", ProfileText(t.Status.Applied.Profile))
}

// keptUp reports whether the plugin reports the applied profile. It does not after a failed
// rollback.
func (t *turn) keptUp() bool {
	return t.Status.Applied == nil || t.Status.Node == nil || t.node.Applied == t.Status.Applied.Hash
}

func (t *turn) fromTo() string {
	sw := t.Status.Switch
	return fmt.Sprintf("from %s to %s", ProfileText(sw.From.Profile), ProfileText(sw.To.Profile))
}

// FailedText says why a switch failed, and when it is retried.
func FailedText(s *v1alpha1.GPUNodeStatus) string {
	t := turn{Step: Step{Status: *s}}
	return t.failedText()
}

func (t *turn) failedText() string {
	sw := t.Status.Switch
	said := fmt.Sprintf("%s could not be applied: %s", ProfileText(sw.To.Profile), strings.TrimSuffix(sw.Message, "."))
	if sw.Reason != names.ReasonRollbackFailed {
		said += fmt.Sprintf(". The node is unchanged, with %s", ProfileText(sw.From.Profile))
	}
	switch {
	case len(sw.Blockers) > 0:
		return said + ". It is retried when they can be evicted, which is checked at least every 30 minutes, or when the profile or its policy changes"
	case sw.Retry != nil:
		return said + fmt.Sprintf(". Attempt %d starts at %s", sw.Attempt+1, text.Clock(sw.Retry.Time))
	case sw.Rebooted:
		return said + ". The node was rebooted for it and is not rebooted again automatically: it is retried when the profile or its policy changes"
	case sw.Reason == names.ReasonRebootRequired || sw.Reason == names.ReasonNeedsReset:
		return said + ". Set spec.switch.reboot: Allowed in the profile, or reboot the node; it is retried when the profile, its policy, the GPUs or the plugin's settings change"
	}
	if sw.Evicted > 0 && sw.Retry == nil {
		said += ". Pods were evicted for it, and are not evicted again automatically"
	}
	return said + ". It is retried when the profile, its policy, the GPUs or the plugin's settings change"
}

// progress says what happens in the current state, and its deadline.
func (t *turn) progress() string {
	sw := t.Status.Switch
	if !t.switching() {
		return "no switch is in progress"
	}
	said := t.doing()
	if t.Trouble != "" {
		said += "; " + t.Trouble
	}
	if sw.Deadline == nil {
		return said
	}
	return fmt.Sprintf("%s; until %s at the latest, then %s", said, text.Clock(sw.Deadline.Time), t.then())
}

func (t *turn) doing() string {
	sw := t.Status.Switch
	gpus := list(sw.GPUs)
	switch t.Status.State {
	case v1alpha1.Planning:
		return "the node's plugin plans which GPUs have to change"
	case v1alpha1.Waiting:
		return "waits for other nodes" + t.Others
	case v1alpha1.Tainted:
		return t.taints(gpus)
	case v1alpha1.Draining:
		return t.draws(gpus)
	case v1alpha1.Applying:
		if len(sw.GPUs) == 0 {
			return "the node's plugin applies changes that affect no pod"
		}
		return "the node's plugin changes " + gpus + t.changes()
	case v1alpha1.Rebooting:
		return "the node reboots, because its GPUs change only after a reboot"
	case v1alpha1.Verifying:
		return "compares node and API server: " + cmp.Or(t.differs(sw.To.Hash), "they agree")
	}
	return fmt.Sprintf("rolls back to %s, because %s", ProfileText(sw.From.Profile), cmp.Or(sw.Message, sw.Reason))
}

func (t *turn) draws(gpus string) string {
	text := "evicts pods from " + gpus
	if t.Status.Switch.NodeTaint {
		text += ", and taints the node, because device taints would not keep all new pods off"
	}
	if t.Status.Switch.Withhold {
		text += ", whose free devices are not published, because a claim tolerates their taint"
	}
	if left := t.inTheWay(); len(left) > 0 {
		text += ": " + list(left)
	}
	return text
}

// taints says what happens between the order of taints and the drain.
func (t *turn) taints(gpus string) string {
	switch {
	case drainPlan(t.Status.Switch, t.node) == nil:
		return "the node's plugin taints " + gpus + ", then plans again"
	case len(t.Blockers) > 0:
		return "keeps new pods off " + gpus + "; " + t.blockedText()
	case t.Unseen != "":
		return "keeps new pods off " + gpus + "; it is not known who is there: " + t.Unseen
	}
	return "keeps new pods off " + gpus
}

// changes lists the changes of the plan.
func (t *turn) changes() string {
	plan := t.answer(v1alpha1.Planning, v1alpha1.Tainted)
	if plan == nil {
		return ""
	}
	var what []string
	for i := range plan.Changes {
		what = append(what, plan.Changes[i].What)
	}
	return " (" + list(compact(what)) + ")"
}

// then says what happens after the deadline.
func (t *turn) then() string {
	policy := t.Status.Switch.Policy
	switch {
	case t.Status.State == v1alpha1.RollingBack:
		return "the switch fails"
	case t.begun():
		return "it is rolled back"
	case t.Status.State == v1alpha1.Draining && policy.AfterDeadline == v1alpha1.Force:
		return fmt.Sprintf("it is canceled; pods that remain at %s are deleted regardless of their budgets", text.Clock(t.drainedBy()))
	}
	return "it is canceled and nothing changes"
}

func (t *turn) silentText(what string) string {
	lasted := t.Status.Switch.Deadline.Sub(t.Status.Switch.Since.Time)
	return fmt.Sprintf("the node's plugin did not %s within %s: check its pod and its log", what, lasted)
}

// mostNamed limits how many things a message names.
const mostNamed = 5

// list names a few things and counts the rest.
func list(all []string) string { return text.List(all, mostNamed) }

// compact removes duplicates.
func compact(all []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range all {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
