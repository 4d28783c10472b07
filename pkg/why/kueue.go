package why

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/pkg/why/kueue"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// gatesOfKueue say when Kueue removes its gates.
var gatesOfKueue = map[string]string{
	kueue.TopologyGate: "when it has admitted the pod's job and chosen the nodes for its pods",
	kueue.ElasticGate:  "when it has quota for the size that the pod's job has now",
}

// gatedByKueue says what Kueue waits for before it removes a gate.
func (e *Explanation) gatedByKueue(in *Input, gate string) {
	e.Summary += " Kueue removes its gate " + cmp.Or(gatesOfKueue[gate], "when it admits the pod or its job")
	w := kueue.OfPod(in.Workloads, in.Pod)
	switch {
	case w != nil:
		said := w.Waits()
		e.Summary += fmt.Sprintf(": the Workload %s %s.", w.Name, said.Text)
		e.Quotes = append(e.Quotes, KueueSays(w, in.Now)...)
		e.Remedies = append(e.Remedies, KueueRemedies(e.Namespace, w)...)
		if said.State == kueue.Admitted {
			e.remedy("wait: that takes seconds. If it takes longer, see the Workload:", fmt.Sprintf("kubectl describe workload %s -n %s", w.Name, e.Namespace))
		}
	case in.unread(unread.Workloads):
		e.Summary += "."
		e.remedy("ask an administrator what Kueue waits for, or for the right to list workloads.kueue.x-k8s.io in the namespace.", "")
	default:
		e.Summary += "; no Workload of theirs was found."
		e.remedy("see whether Kueue runs, and manages objects of this kind. Its Workloads:", "kubectl get workloads -n "+e.Namespace)
	}
}

// KueueSays quotes what Kueue says about a Workload.
func KueueSays(w *kueue.Workload, now time.Time) []Quote {
	said := w.Waits()
	if said.Message == "" {
		return nil
	}
	q := Quote{Who: "Kueue about the workload " + w.Name, Reason: said.Reason, Message: said.Message}
	for _, c := range w.Status.Conditions {
		if c.Message == said.Message && meta.IsStatusConditionPresentAndEqual(w.Status.Conditions, c.Type, c.Status) {
			q.Age = ageOf(now, c.LastTransitionTime.Time)
		}
	}
	return []Quote{q}
}

// KueueRemedies are what a person can do about a Workload that is not admitted.
func KueueRemedies(namespace string, w *kueue.Workload) []Remedy {
	queue := Remedy{Text: "see what the queue has and who waits in it:", Command: fmt.Sprintf("kubectl describe localqueue %s -n %s", w.Spec.QueueName, namespace)}
	switch w.Waits().State {
	case kueue.Pending, kueue.Evicted:
		return []Remedy{{Text: "wait: Kueue starts it when other jobs of the queue end, or ask for less."}, queue}
	case kueue.Inadmissible:
		return []Remedy{{Text: "change the job or its queue as Kueue's message says, or ask the administrator of the queue."}, queue}
	case kueue.Checking:
		return []Remedy{{Text: "wait until the admission checks are done:", Command: fmt.Sprintf("kubectl describe workload %s -n %s", w.Name, namespace)}}
	case kueue.Deactivated:
		return []Remedy{{Text: "when the reason is over, queue it again:",
			Command: fmt.Sprintf(`kubectl patch workload %s -n %s --type=merge -p '{"spec":{"active":true}}'`, w.Name, namespace)}}
	case kueue.Admitted, kueue.Finished:
	}
	return nil
}
