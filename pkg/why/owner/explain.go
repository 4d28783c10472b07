package owner

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/kueue"
	"github.com/tranche-dev/tranche/pkg/why/quota"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// Explain explains why the pods of an owner do not run.
func Explain(in Input) *Explanation {
	if in.Claim != nil {
		return in.explainClaim()
	}
	f := in.facts()
	e := &Explanation{Namespace: f.meta.GetNamespace(), Kind: f.kind, Name: f.meta.GetName()}
	pods := in.pods(f)
	e.Groups = grouped(pods)
	live := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
	})
	refused := in.warnings(f, "FailedCreate")
	switch {
	case f.finished != "":
		e.say(Finished, "%s is over: %s.", e.who(), strings.TrimSuffix(f.finished, "."))
	case f.meta.GetDeletionTimestamp() != nil:
		e.say(Terminating, "%s is being deleted.", e.who())
	case f.suspended:
		e.held(&in, f)
	case f.wanted <= 0 && len(live) == 0:
		e.say(Idle, "%s asks for no pods.", e.who())
		e.remedy("give it replicas or parallelism.", "")
	case len(live) < f.wanted && len(refused) > 0 && !in.unread(unread.Pods):
		e.refused(&in, f, len(live), refused)
	case in.unread(unread.Pods):
		e.say(Unknown, "It cannot be determined what %s waits for without its pods.", e.who())
	case len(live) == 0:
		e.noPods(&in, f)
	case len(e.Groups) == 0 && len(live) >= f.wanted:
		e.say(Running, "%s runs: %s.", e.who(), count(len(live), "pod is ready", "pods are ready"))
	default:
		e.waiting(f, len(live))
	}
	e.tellUnread(&in)
	return e
}

func (e *Explanation) say(s State, format string, args ...any) {
	e.State, e.Summary = s, text.Capital(fmt.Sprintf(format, args...))
}

// who names the owner: "the job team-a/nightly".
func (e *Explanation) who() string {
	return fmt.Sprintf("the %s %s/%s", e.kind(), e.Namespace, e.Name)
}

func (e *Explanation) kind() string {
	return map[string]string{Job: "job", Deployment: "deployment", ReplicaSet: "replica set", StatefulSet: "stateful set", JobSetKind: "job set", ResourceClaim: "resource claim"}[e.Kind]
}

// command is kubectl's name of the owner.
func (e *Explanation) command() string {
	return strings.ToLower(e.Kind) + " " + e.Name + " -n " + e.Namespace
}

// held explains an owner that may not begin.
func (e *Explanation) held(in *Input, f facts) {
	queue, queued := f.meta.GetLabels()[kueue.QueueLabel]
	w, above := kueue.Of(in.Workloads, f.meta), resumer(f.meta)
	switch {
	case w != nil:
		said := w.Waits()
		e.Workload = &Workload{Name: w.Name, Queue: w.Spec.QueueName, State: said.State, Reason: said.Reason}
		e.say(NotAdmitted, "%s is suspended until Kueue admits it: it %s. Its queue is %s.", e.who(), said.Text, w.Spec.QueueName)
		e.Quotes = append(e.Quotes, why.KueueSays(w, in.Now)...)
		e.Remedies = append(e.Remedies, why.KueueRemedies(e.Namespace, w)...)
		if said.State == kueue.Admitted {
			e.Summary = text.Capital(fmt.Sprintf("%s is admitted by Kueue, which resumes it now.", e.who()))
		}
	case above != nil:
		e.say(Suspended, "%s is suspended: spec.suspend is true. It belongs to the %s %s, which resumes it.", e.who(), above.Kind, above.Name)
		command := "kubectl describe "
		if above.Kind == JobSetKind {
			command = "kubectl tranche why "
		}
		e.remedy("ask about that:", command+strings.ToLower(above.Kind)+"/"+above.Name+" -n "+e.Namespace)
	case queued && in.unread(unread.Workloads):
		e.say(NotAdmitted, "%s is suspended. By its label it waits in Kueue's queue %s.", e.who(), queue)
		e.remedy("ask an administrator for the right to list workloads.kueue.x-k8s.io in the namespace.", "")
	case queued:
		e.say(NotAdmitted, "%s is suspended. By its label it waits in Kueue's queue %s, but Kueue has created no Workload for it.", e.who(), queue)
		e.remedy("see whether Kueue runs, manages jobs of this kind, and has this queue:", "kubectl get localqueues -n "+e.Namespace)
	case in.unread(unread.Workloads):
		e.say(Suspended, "%s is suspended: spec.suspend is true. Whether Kueue has suspended it cannot be determined.", e.who())
		e.remedy("ask an administrator for the right to list workloads.kueue.x-k8s.io in the namespace, or who has suspended it.", "")
	default:
		e.say(Suspended, "%s is suspended: spec.suspend is true.", e.who())
		e.remedy("if nothing else resumes it:", "kubectl patch "+e.command()+` --type=merge -p '{"spec":{"suspend":false}}'`)
	}
}

// resumer is the owner that suspends and resumes an object with its other ones. A CronJob does not.
func resumer(o metav1.Object) *metav1.OwnerReference {
	if by := metav1.GetControllerOf(o); by != nil && by.Kind != "CronJob" {
		return by
	}
	return nil
}

// refused explains pods that the API server refuses.
func (e *Explanation) refused(in *Input, f facts, live int, refused []why.Quote) {
	e.say(PodsRefused, "%s has %d of %s: others cannot be created.", e.who(), live, count(f.wanted, "pod", "pods"))
	e.Quotes = refused
	if f.template != nil {
		e.Exceeded = quota.Exceeded(in.Quotas, quota.OfPod(f.template))
	}
	if len(e.Exceeded) > 0 {
		e.Summary += " " + text.Capital(quota.Sentence(e.Exceeded)) + "."
		e.remedy("wait until others of the namespace end, delete some, ask for less, or ask for a larger quota:", "kubectl describe quota -n "+e.Namespace)
		return
	}
	e.remedy("fix what the message says; the pods are created again automatically. If a quota is exceeded, see:", "kubectl describe quota -n "+e.Namespace)
}

// noPods explains an owner without pods about which nobody says anything.
func (e *Explanation) noPods(in *Input, f facts) {
	e.say(NoPods, "%s has no pods yet.", e.who())
	e.Quotes = in.warnings(f)
	if in.unread(unread.Events) {
		e.Summary += " Without its events it cannot be told why."
		return
	}
	e.remedy("wait: its controller creates them in seconds. If it does not, see:", "kubectl describe "+e.command())
}

// waiting explains an owner of which some pods do not run.
func (e *Explanation) waiting(f facts, live int) {
	var parts []string
	for _, g := range e.Groups {
		for _, w := range words {
			if w.Waits == g.Waits {
				parts = append(parts, count(len(g.Pods), w.one, w.many))
			}
		}
	}
	e.say(Waiting, "%s wants %s", e.who(), count(f.wanted, "pod", "pods"))
	if len(parts) > 0 {
		e.Summary += ": " + strings.Join(parts, ", ")
	}
	e.Summary += "."
	if missing := f.wanted - live; missing > 0 && f.ordered {
		e.Summary += fmt.Sprintf(" It creates the other %s when the pods before are ready.", count(missing, "one", ""))
	} else if missing > 0 {
		e.Summary += fmt.Sprintf(" It has not created %s yet.", count(missing, "pod", "pods"))
	}
}

// count is a number with its noun. Without a plural, one has no number.
func count(n int, one, many string) string {
	switch {
	case n == 1 && many == "":
		return one
	case n == 1:
		return "1 " + one
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", n, many))
}

// warnings quotes the latest warnings about the owner and the objects that create its pods.
func (in *Input) warnings(f facts, reasons ...string) []why.Quote {
	return why.Warnings(in.Events, in.Now, func(e corev1.Event) bool {
		about := slices.Contains(f.about, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name)
		return about && (len(reasons) == 0 || slices.Contains(reasons, e.Reason))
	})
}

// tellUnread says what the answer lacks.
func (e *Explanation) tellUnread(in *Input) {
	of := map[State][]unread.Resource{
		Suspended:   {unread.Workloads},
		NotAdmitted: {unread.Workloads, unread.Events},
		PodsRefused: {unread.Quotas},
		NoPods:      {unread.Events, unread.Quotas, unread.ReplicaSets, unread.Jobs},
		Waiting:     {unread.ReplicaSets, unread.Jobs, unread.Events},
		Unknown:     {unread.Pods, unread.ReplicaSets, unread.Jobs, unread.Events},
		Unused:      {unread.Pods},
		Allocated:   {unread.Pods},
	}[e.State]
	for _, u := range in.Unread {
		if slices.Contains(of, u.Resource) {
			e.Unread = append(e.Unread, u)
			e.Notes = append(e.Notes, u.Note())
		}
	}
}
