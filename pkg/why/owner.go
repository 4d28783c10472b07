package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/text"
)

// ExplainOwner explains why the pods of an owner do not run.
func ExplainOwner(in OwnerInput) *OwnerExplanation {
	if in.Claim != nil {
		return in.explainClaim()
	}
	f := in.facts()
	e := &OwnerExplanation{Namespace: f.meta.GetNamespace(), Kind: f.kind, Name: f.meta.GetName()}
	pods := in.pods(f)
	e.Groups = grouped(pods)
	live := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
	})
	refused := in.warnings(f, "FailedCreate")
	switch {
	case f.finished != "":
		e.say(Finished, "%s has finished: %s.", e.who(), strings.TrimSuffix(f.finished, "."))
	case f.meta.GetDeletionTimestamp() != nil:
		e.say(Terminating, "%s is being deleted.", e.who())
	case f.suspended:
		e.notStarted(&in, f)
	case f.wanted <= 0 && len(live) == 0:
		e.say(Idle, "%s wants no pods.", e.who())
		e.remedy("set its replicas or parallelism.", "")
	case len(live) < f.wanted && len(refused) > 0 && !has(in.Unread, ResourcePods):
		e.refused(&in, f, len(live), refused)
	case has(in.Unread, ResourcePods):
		e.say(Unknown, "It cannot be determined what %s waits for without its pods.", e.who())
	case len(live) == 0:
		e.noPods(&in, f)
	case len(e.Groups) == 0 && len(live) >= f.wanted:
		e.say(Running, "%s runs: all pods are ready (%d).", e.who(), len(live))
	default:
		e.waiting(f, len(live))
	}
	return e.withUnread(&in)
}

func (e *OwnerExplanation) say(s State, format string, args ...any) {
	e.State, e.Summary = s, text.Capital(fmt.Sprintf(format, args...))
}

// who returns the owner's name in a sentence: "the job team-a/nightly".
func (e *OwnerExplanation) who() string {
	return fmt.Sprintf("the %s %s/%s", e.kind(), e.Namespace, e.Name)
}

func (e *OwnerExplanation) kind() string {
	return map[string]string{KindJob: "job", KindDeployment: "deployment", KindReplicaSet: "replica set", KindStatefulSet: "stateful set", KindJobSet: "job set", KindResourceClaim: "resource claim"}[e.Kind]
}

// command returns the owner as arguments of kubectl.
func (e *OwnerExplanation) command() string {
	return strings.ToLower(e.Kind) + " " + e.Name + " -n " + e.Namespace
}

// notStarted explains an owner that is suspended.
func (e *OwnerExplanation) notStarted(in *OwnerInput, f facts) {
	queue, queued := f.meta.GetLabels()[KueueQueueLabel]
	w, parent := workloadOf(in.Workloads, f.meta.GetUID()), resumer(f.meta)
	switch {
	case w != nil:
		said := w.pending()
		e.Workload = &WorkloadStatus{Name: w.Name, Queue: w.Spec.QueueName, State: said.State, Reason: said.Reason}
		e.say(NotAdmitted, "%s is suspended until Kueue admits it: it %s. Its queue is %s.", e.who(), said.Text, w.Spec.QueueName)
		e.Quotes = append(e.Quotes, kueueQuotes(w, in.Now)...)
		e.Remedies = append(e.Remedies, kueueRemedies(e.Namespace, w)...)
		if said.State == WorkloadAdmitted {
			e.Summary = text.Capital(fmt.Sprintf("%s is admitted by Kueue, which resumes it now.", e.who()))
		}
	case parent != nil:
		e.say(Suspended, "%s is suspended: spec.suspend is true. It belongs to the %s %s, which resumes it.", e.who(), parent.Kind, parent.Name)
		command := "kubectl describe "
		if parent.Kind == KindJobSet {
			command = "kubectl tranche why "
		}
		e.remedy("see why:", command+strings.ToLower(parent.Kind)+"/"+parent.Name+" -n "+e.Namespace)
	case queued && has(in.Unread, ResourceWorkloads):
		e.say(NotAdmitted, "%s is suspended. By its label it waits in Kueue's queue %s.", e.who(), queue)
		e.remedy("ask an administrator for the right to list workloads.kueue.x-k8s.io in the namespace.", "")
	case queued:
		e.say(NotAdmitted, "%s is suspended. By its label it waits in Kueue's queue %s, but Kueue has created no Workload for it.", e.who(), queue)
		e.remedy("see whether Kueue runs, manages jobs of this kind, and has this queue:", "kubectl get localqueues -n "+e.Namespace)
	case has(in.Unread, ResourceWorkloads):
		e.say(Suspended, "%s is suspended: spec.suspend is true. Whether Kueue has suspended it cannot be determined.", e.who())
		e.remedy("ask an administrator for the right to list workloads.kueue.x-k8s.io in the namespace, or who has suspended it.", "")
	default:
		e.say(Suspended, "%s is suspended: spec.suspend is true.", e.who())
		e.remedy("if nothing else resumes it:", "kubectl patch "+e.command()+` --type=merge -p '{"spec":{"suspend":false}}'`)
	}
}

// resumer returns the owner that suspends and resumes an object. A CronJob does not.
func resumer(o metav1.Object) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind != "CronJob" {
		return owner
	}
	return nil
}

// refused explains an owner whose pods the API server rejects.
func (e *OwnerExplanation) refused(in *OwnerInput, f facts, live int, refused []Quote) {
	e.say(PodsRefused, "%s has %d of %d pods: others cannot be created.", e.who(), live, f.wanted)
	e.Quotes = refused
	if f.template != nil {
		e.Exceeded = exceeded(in.Quotas, quotaOfPod(f.template))
	}
	if len(e.Exceeded) > 0 {
		e.Summary += " " + quotaText(e.Exceeded)
		e.remedy("wait until others of the namespace end, delete some, ask for less, or ask for a larger quota:", "kubectl describe quota -n "+e.Namespace)
		return
	}
	e.remedy("fix what the message says; the pods are created again automatically. If a quota is exceeded, see:", "kubectl describe quota -n "+e.Namespace)
}

// noPods explains an owner without pods and without events.
func (e *OwnerExplanation) noPods(in *OwnerInput, f facts) {
	e.say(NoPods, "%s has no pods yet.", e.who())
	e.Quotes = in.warnings(f)
	if has(in.Unread, ResourceEvents) {
		e.Summary += " Without its events it cannot be determined why."
		return
	}
	e.remedy("wait: its controller creates them in seconds. If it does not, see:", "kubectl describe "+e.command())
}

// waiting explains an owner some of whose pods do not run.
func (e *OwnerExplanation) waiting(f facts, live int) {
	var parts []string
	for _, g := range e.Groups {
		for _, w := range podStates {
			if w.State == g.Waits {
				parts = append(parts, fmt.Sprintf("%d %s", len(g.Pods), w.message))
			}
		}
	}
	missing := f.wanted - live
	if missing > 0 {
		parts = append(parts, fmt.Sprintf("%d not created yet", missing))
	}
	e.say(Waiting, "%s waits for its pods (%d wanted): %s.", e.who(), f.wanted, strings.Join(parts, ", "))
	if missing > 0 && f.sequential {
		e.Summary += fmt.Sprintf(" It creates the other %d when the previous pods are ready.", missing)
	}
}

// warnings quotes the latest warnings about the owner and the objects that create its pods.
func (in *OwnerInput) warnings(f facts, reasons ...string) []Quote {
	return quotes(in.Events, in.Now, func(e corev1.Event) bool {
		about := slices.Contains(f.about, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name)
		return about && (len(reasons) == 0 || slices.Contains(reasons, e.Reason))
	})
}
