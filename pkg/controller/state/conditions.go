package state

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// describe says it all for people.
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
	set(v1alpha1.ConditionReady, ready, reason, message)
	set(v1alpha1.ConditionSwitching, t.switching(), string(t.Status.State), t.progress())
	if t.Choice.Overruled != "" {
		set(v1alpha1.ConditionOverruled, true, t.Choice.Overruler, t.Choice.Overruled)
	} else {
		set(v1alpha1.ConditionOverruled, false, v1alpha1.ReasonNone, "")
	}
	if t.conflict() {
		set(v1alpha1.ConditionConflict, true, v1alpha1.ReasonOtherOwner, t.conflictText())
	} else {
		set(v1alpha1.ConditionConflict, false, v1alpha1.ReasonNone, "")
	}
}

// reasonPattern is what the API server takes as the reason of a condition. What the
// plugin sends is not checked anywhere, and a status that is refused would stop it all.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// mostReason is how long the reason of an event can be; that of a condition can be
// longer.
const mostReason = 128

// ReasonWord is a reason as conditions, events and metrics take it.
func ReasonWord(reason string) string {
	if len(reason) <= mostReason && reasonPattern.MatchString(reason) {
		return reason
	}
	return v1alpha1.ReasonOther
}

// mostMessage is how long a message gets: people read it in one piece.
const mostMessage = 4096

func (t *turn) conflictText() string {
	return fmt.Sprintf("other systems serve GPUs of the node, so their modes and partitions are left alone: %s", strings.Join(t.node.Owners, "; "))
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
		return false, v1alpha1.ReasonSwitching, t.fromTo() + ": " + t.progress()
	case t.Status.Node == nil:
		return false, v1alpha1.ReasonNoReport, "the node's plugin has not reported its GPUs yet: is its pod running there?"
	case t.conflict():
		return false, v1alpha1.ReasonConflict, t.conflictText()
	case t.Choice.Keep == v1alpha1.ReasonProfileNotFound, t.Choice.Keep == v1alpha1.ReasonNodeNotFound:
		return false, t.Choice.Keep, t.Choice.Message + "; " + t.kept()
	case t.Choice.Keep != "":
		return t.keptUp(), t.Choice.Keep, t.Choice.Message + ": " + t.kept()
	case len(t.node.GPUs) == 0:
		return true, v1alpha1.ReasonNoGPUs, "the node has no GPUs"
	}
	return true, v1alpha1.ReasonApplied, t.appliedText()
}

// followed is what the node follows, with what is amiss or waits.
func (t *turn) appliedText() string {
	texts := []string{"no profile is wanted, and the GPUs are used as they are"}
	if a := t.Status.Applied; a != nil && a.Profile != "" {
		texts[0] = fmt.Sprintf("%s is followed, as %s names it", ProfileText(a.Profile), sourceText(a.Source))
		if a.Source == v1alpha1.FromDefault {
			texts[0] = fmt.Sprintf("%s is followed", ProfileText(a.Profile))
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

// kept is what the node stays with.
func (t *turn) kept() string {
	if t.Status.Applied == nil || t.Status.Applied.Profile == "" {
		return "the GPUs stay as they are"
	}
	if !t.keptUp() {
		return fmt.Sprintf("its GPUs are not as %s wants them, which could not be put back", ProfileText(t.Status.Applied.Profile))
	}
	return fmt.Sprintf("it stays with %s", ProfileText(t.Status.Applied.Profile))
}

// keptUp tells whether the GPUs are as they were left, as far as the plugin says: not
// so after a roll back that failed.
func (t *turn) keptUp() bool {
	return t.Status.Applied == nil || t.Status.Node == nil || t.node.Applied == t.Status.Applied.Hash
}

func (t *turn) fromTo() string {
	sw := t.Status.Switch
	return fmt.Sprintf("from %s to %s", ProfileText(sw.From.Profile), ProfileText(sw.To.Profile))
}

// FailedText says of a switch that has failed why, and what comes next.
func FailedText(s *v1alpha1.GPUNodeStatus) string {
	t := turn{Step: Step{Status: *s}}
	return t.failedText()
}

func (t *turn) failedText() string {
	sw := t.Status.Switch
	said := fmt.Sprintf("%s could not be reached: %s", ProfileText(sw.To.Profile), strings.TrimSuffix(sw.Message, "."))
	if sw.Reason != v1alpha1.ReasonRollbackFailed {
		said += fmt.Sprintf(". The node is as before, with %s", ProfileText(sw.From.Profile))
	}
	switch {
	case len(sw.Blockers) > 0:
		return said + ". It is tried again when they can leave, which is looked at every 30 minutes at the latest, or when the profile or its policy changes"
	case sw.Retry != nil:
		return said + fmt.Sprintf(". Try %d begins at %s", sw.Attempt+1, text.Clock(sw.Retry.Time))
	case sw.Rebooted:
		return said + ". The node was rebooted for it and is not rebooted again by itself: it is tried again when the profile or its policy changes"
	case sw.Reason == v1alpha1.ReasonRebootRequired || sw.Reason == v1alpha1.ReasonNeedsReset:
		return said + ". Set spec.switch.reboot: Allowed in the profile, or reboot the node's GPUs by hand; it is tried again when the profile, its policy, the GPUs or the plugin's settings change"
	}
	return said + ". It is tried again when the profile, its policy, the GPUs or the plugin's settings change"
}

// progress says what the state is about, and until when.
func (t *turn) progress() string {
	sw := t.Status.Switch
	if !t.switching() {
		return "nothing is under way"
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
		return "the node's plugin works out which GPUs have to change"
	case v1alpha1.Waiting:
		return "waits for other nodes" + t.Others
	case v1alpha1.Tainted:
		return t.taints(gpus)
	case v1alpha1.Draining:
		return t.draws(gpus)
	case v1alpha1.Applying:
		if len(sw.GPUs) == 0 {
			return "the node's plugin applies what disturbs nobody"
		}
		return "the node's plugin changes " + gpus + t.changes()
	case v1alpha1.Rebooting:
		return "the node reboots, since its GPUs change only then"
	case v1alpha1.Verifying:
		return "compares node and API server: " + cmp.Or(t.differs(sw.To.Hash), "they agree")
	}
	return fmt.Sprintf("puts back what was before (%s), because %s", ProfileText(sw.From.Profile), cmp.Or(sw.Message, sw.Reason))
}

func (t *turn) draws(gpus string) string {
	text := "asks pods to leave " + gpus
	if t.Status.Switch.NodeTaint {
		text += ", and keeps new pods off the node, since the taints of devices would not keep all of them off"
	}
	if t.Status.Switch.Withhold {
		text += ", whose free devices are not published, since a claim tolerates their taint"
	}
	if left := t.inTheWay(); len(left) > 0 {
		text += ": " + list(left)
	}
	return text
}

// taints is what happens between the order of taints and the drain.
func (t *turn) taints(gpus string) string {
	switch {
	case drainPlan(t.Status.Switch, t.node) == nil:
		return "the node's plugin keeps new pods off " + gpus + " by taints, and then plans again"
	case len(t.Blockers) > 0:
		return "keeps new pods off " + gpus + "; " + t.blockedText()
	case t.Unseen != "":
		return "keeps new pods off " + gpus + "; it is not known who is there: " + t.Unseen
	}
	return "keeps new pods off " + gpus
}

// changes is what has to change, as the plan says it.
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

// then is what comes after the deadline.
func (t *turn) then() string {
	policy := t.Status.Switch.Policy
	switch {
	case t.Status.State == v1alpha1.RollingBack:
		return "the switch fails as it is"
	case t.begun():
		return "it is rolled back"
	case t.Status.State == v1alpha1.Draining && policy.AfterDeadline == v1alpha1.Force:
		return fmt.Sprintf("it is given up; pods that are there at %s are deleted, whatever their budgets say", text.Clock(t.drainedBy()))
	}
	return "it is given up and everything stays as it is"
}

func (t *turn) silentText(what string) string {
	lasted := t.Status.Switch.Deadline.Sub(t.Status.Switch.Since.Time)
	return fmt.Sprintf("the node's plugin did not %s within %s: does its pod run there, and what does it log?", what, lasted)
}

// mostNamed is how many things a message names; the rest is counted.
const mostNamed = 5

// list names a few things and counts the rest.
func list(all []string) string { return text.List(all, mostNamed) }

// compact leaves out what was there before.
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
