package state

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

func (e *evaluation) describe(generation int64) {
	e.Status.ObservedGeneration = generation
	say := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: ReasonWord(reason), Message: text.Cut(message, v1beta1.MaxConditionMessage),
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(e.Now),
		})
	}
	set := func(kind string, status bool, reason, message string) {
		say(kind, statusOf(status), reason, message)
	}
	ready, reason, message := e.ready()
	say(names.ConditionReady, ready, reason, message)
	set(names.ConditionSwitching, e.switching(), string(e.Status.State), e.progress())
	if o := e.Choice.Overridden; o.Reason != "" {
		set(names.ConditionOverridden, true, o.Reason, o.Message)
	} else {
		set(names.ConditionOverridden, false, names.ReasonNone, "")
	}
	if p := e.Choice.Pending; p != nil {
		set(names.ConditionRolloutPending, true, p.Reason, p.Message)
	} else {
		set(names.ConditionRolloutPending, false, names.ReasonNone, "")
	}
	if e.conflict() {
		set(names.ConditionConflicted, true, names.ReasonOtherSystem, e.conflictText())
	} else {
		set(names.ConditionConflicted, false, names.ReasonNone, "")
	}
}

// reasonPattern is the pattern of reasons that the API server accepts in conditions. Reasons
// from the plugin can be anything, and a refused status would stop the switch.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// mostReason is the longest reason of an event. Those of conditions can be longer.
const mostReason = 128

// ReasonWord returns the reason if conditions, events and metrics accept it, otherwise ReasonOther.
func ReasonWord(reason string) string {
	if len(reason) <= mostReason && reasonPattern.MatchString(reason) {
		return reason
	}
	return names.ReasonOther
}

func statusOf(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func (e *evaluation) conflictText() string {
	return fmt.Sprintf("other systems serve GPUs of the node, so Tranche does not change their modes and partitions: %s", e.node.OtherSystemsText())
}

func (e *evaluation) switching() bool {
	return e.Status.Switch != nil && e.Status.State != v1beta1.Failed && e.Status.State != v1beta1.Idle
}

func (e *evaluation) ready() (metav1.ConditionStatus, string, string) {
	sw := e.Status.Switch
	switch {
	case e.Status.State == v1beta1.Failed:
		return metav1.ConditionFalse, sw.Reason, e.failedText()
	case e.switching():
		return metav1.ConditionFalse, names.ReasonSwitching, e.fromTo() + ": " + e.progress()
	case e.Status.Node == nil:
		return metav1.ConditionUnknown, names.ReasonNoReport, "the node's plugin has not reported its GPUs yet; check that its pod is running"
	case e.conflict():
		return metav1.ConditionFalse, names.ReasonOtherSystem, e.conflictText()
	case e.unknownProtocol():
		return metav1.ConditionFalse, names.ReasonProtocolUnknown, fmt.Sprintf(
			"the node's plugin, version %s, follows protocol %d, and this controller knows %d: update the controller; %s",
			e.node.PluginVersion, e.node.ProtocolVersion, v1beta1.ProtocolVersion, e.kept())
	case e.Choice.Missing != "", e.Choice.Keep == names.ReasonNodeNotFound:
		return metav1.ConditionFalse, e.Choice.Keep, e.Choice.Message + "; " + e.kept()
	case e.Choice.Keep != "":
		return statusOf(e.keptUp()), e.Choice.Keep, e.Choice.Message + ": " + e.kept()
	case !e.node.HasGPUs():
		return metav1.ConditionTrue, names.ReasonNoGPUs, "the node has no GPUs"
	}
	return metav1.ConditionTrue, names.ReasonApplied, e.appliedText()
}

// appliedText says what is applied, and what is pending or wrong.
func (e *evaluation) appliedText() string {
	texts := []string{"no profile is set, and GPUs are partitioned on demand"}
	if a := e.Status.Applied; a != nil && a.ProfileName != "" {
		texts[0] = fmt.Sprintf("%s is applied", text.Profile(a.ProfileName))
		if e.Choice.SetBy != "" {
			texts[0] += ", as set by " + e.Choice.SetBy
		}
	}
	for i := range e.node.GPUs {
		c := &e.node.GPUs[i]
		if c.Pending != "" {
			texts = append(texts, c.Name+": "+c.Pending)
		}
		if problem := v1beta1.ProblemText(c.Problems); problem != "" {
			texts = append(texts, c.Name+": "+problem)
		}
	}
	return strings.Join(texts, "; ")
}

func (e *evaluation) kept() string {
	if e.Status.Applied == nil || e.Status.Applied.ProfileName == "" {
		return "the GPUs do not change"
	}
	if !e.keptUp() {
		return fmt.Sprintf("its GPUs differ from %s, which could not be restored", text.Profile(e.Status.Applied.ProfileName))
	}
	return fmt.Sprintf("it keeps %s", text.Profile(e.Status.Applied.ProfileName))
}

// keptUp reports whether the plugin reports the applied profile. It does not after a failed
// rollback.
func (e *evaluation) keptUp() bool {
	return e.Status.Applied == nil || e.Status.Node == nil || e.node.AppliedHash == e.Status.Applied.Hash
}

func (e *evaluation) fromTo() string {
	sw := e.Status.Switch
	return fmt.Sprintf("from %s to %s", text.Profile(sw.From.ProfileName), text.Profile(sw.To.ProfileName))
}

// FailedText says why a switch failed, and when it is retried.
func FailedText(s *v1beta1.GPUNodeStatus) string {
	e := evaluation{Step: Step{Status: *s}}
	return e.failedText()
}

// maxOutlook is the maximum length of what a failed switch says after its reason, which may be that of each
// GPU, in bytes: what the node has now, and what to do.
const maxOutlook = 600

func (e *evaluation) failedText() string {
	sw := e.Status.Switch
	said := fmt.Sprintf("%s could not be applied: %s", text.Profile(sw.To.ProfileName), text.Cut(strings.TrimSuffix(sw.Message, "."), v1beta1.MaxConditionMessage-maxOutlook))
	if sw.Reason != names.ReasonRollbackFailed {
		said += fmt.Sprintf(". The node is unchanged, with %s", text.Profile(sw.From.ProfileName))
	}
	switch {
	case len(sw.Blockers) > 0:
		return said + ". It is retried when they can be evicted, which is checked at least every 30 minutes, or when the profile or its policy changes"
	case sw.RetryTime != nil:
		return said + fmt.Sprintf(". Attempt %d starts at %s", sw.Attempt+1, text.Clock(sw.RetryTime.Time))
	case sw.RebootRequested:
		return said + ". The node was rebooted for it and is not rebooted again automatically: it is retried when the profile or its policy changes"
	case sw.Reason == names.ReasonRebootRequired:
		return said + ". Set spec.switch.reboot: IfRequired in the profile, or reboot the node; it is retried when the profile, its policy, the GPUs or the plugin's settings change"
	}
	if sw.EvictedPodCount > 0 && sw.RetryTime == nil {
		said += ". Pods were evicted for it, and are not evicted again automatically"
	}
	return said + ". It is retried when the profile, its policy, the GPUs or the plugin's settings change"
}

// progress says what happens in the current state, and its deadline.
func (e *evaluation) progress() string {
	sw := e.Status.Switch
	if !e.switching() {
		return "no switch is in progress"
	}
	said := e.doing()
	if e.Trouble != "" {
		said += "; " + e.Trouble
	}
	if sw.DeadlineTime == nil {
		return said
	}
	return fmt.Sprintf("%s; until %s at the latest, then %s", said, text.Clock(sw.DeadlineTime.Time), e.then())
}

func (e *evaluation) doing() string {
	sw := e.Status.Switch
	gpus := list(sw.GPUs)
	switch e.Status.State {
	case v1beta1.Planning:
		return "the node's plugin plans which GPUs have to change"
	case v1beta1.Waiting:
		return "waits for other nodes" + e.Others
	case v1beta1.Tainted:
		return e.taints(gpus)
	case v1beta1.Draining:
		return e.draws(gpus)
	case v1beta1.Applying:
		if len(sw.GPUs) == 0 {
			return "the node's plugin applies changes that affect no pod"
		}
		return "the node's plugin changes " + gpus + e.changes()
	case v1beta1.Rebooting:
		return "the node reboots, because its GPUs change only after a reboot"
	case v1beta1.Verifying:
		return "compares node and API server: " + cmp.Or(e.differs(sw.To.Hash), "they agree")
	}
	return fmt.Sprintf("rolls back to %s, because %s", text.Profile(sw.From.ProfileName), cmp.Or(sw.Message, sw.Reason))
}

func (e *evaluation) draws(gpus string) string {
	text := "evicts pods from " + gpus
	if e.Status.Switch.NodeTaintRequired {
		text += ", and taints the node, because device taints would not keep all new pods off"
	}
	if e.Status.Switch.Withhold {
		text += ", whose free devices are not published, because a claim tolerates their taint"
	}
	if left := e.inTheWay(); len(left) > 0 {
		text += ": " + list(left)
	}
	return text
}

// taints says what happens between the request of taints and the drain.
func (e *evaluation) taints(gpus string) string {
	switch {
	case drainReport(e.Status.Switch, e.node) == nil:
		return "the node's plugin taints " + gpus + ", then plans again"
	case len(e.Blockers) > 0:
		return "keeps new pods off " + gpus + "; " + e.blockedText()
	case e.Unseen != "":
		return "keeps new pods off " + gpus + "; it is not known who is there: " + e.Unseen
	}
	return "keeps new pods off " + gpus
}

func (e *evaluation) changes() string {
	report := e.answer(v1beta1.Planning, v1beta1.Tainted)
	if report == nil {
		return ""
	}
	what := lists.Map(report.Changes, func(g v1beta1.GPUChange) string { return g.Description })
	return " (" + list(compact(what)) + ")"
}

// then says what happens after the deadline.
func (e *evaluation) then() string {
	policy := e.Status.Switch.Policy
	switch {
	case e.Status.State == v1beta1.RollingBack:
		return "the switch fails"
	case e.begun():
		return "it is rolled back"
	case e.Status.State == v1beta1.Draining && policy.AfterDeadline == v1beta1.Force:
		return fmt.Sprintf("it is canceled; pods that remain at %s are deleted regardless of their budgets", text.Clock(e.drainedBy()))
	}
	return "it is canceled and the GPUs stay as they are"
}

func (e *evaluation) silentText(what string) string {
	lasted := e.Status.Switch.DeadlineTime.Sub(e.Status.Switch.StateChangeTime.Time)
	return fmt.Sprintf("the node's plugin did not %s within %s: check its pod and its log", what, lasted)
}

// mostNamed limits how many things a message names.
const mostNamed = 5

// list names a few things and counts the rest.
func list(all []string) string { return text.List(all, mostNamed) }

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
