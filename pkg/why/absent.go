package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/text"
)

// AbsentInput describes a pod that does not exist, with the pods and events of its namespace.
type AbsentInput struct {
	Namespace, Name string
	// NoNamespace is true if the namespace does not exist.
	NoNamespace bool
	Pods        []corev1.Pod
	Events      []corev1.Event
	Unread      []text.Unread
	Now         time.Time
}

// ExplainAbsence explains why a pod does not exist. Name can also be the name of its owner, such as a
// Job or Deployment: if a quota or an admission policy rejects the pods, the owner's events say so.
func ExplainAbsence(in AbsentInput) *Explanation {
	e := &Explanation{Namespace: in.Namespace, Pod: in.Name, State: Absent, Unread: in.Unread}
	e.Summary = fmt.Sprintf("There is no pod %s in the namespace %s.", in.Name, in.Namespace)
	if in.NoNamespace {
		e.Summary = fmt.Sprintf("There is no namespace %s.", in.Namespace)
		e.remedy("see which namespaces there are:", "kubectl get namespaces")
		return e
	}
	related := func(name string) bool {
		return name == in.Name || strings.HasPrefix(name, in.Name+"-") || strings.HasPrefix(in.Name, name+"-")
	}
	e.Quotes = quotes(in.Events, in.Now, func(event corev1.Event) bool {
		return event.Reason == "FailedCreate" && related(event.InvolvedObject.Name)
	})
	if len(e.Quotes) > 0 {
		e.Summary = fmt.Sprintf("There is no pod %s in the namespace %s: it cannot be created.", in.Name, in.Namespace)
		for _, event := range in.Events {
			if event.Reason == "FailedCreate" && event.InvolvedObject.Name == in.Name && event.InvolvedObject.Kind != "ReplicaSet" {
				e.remedy("ask about what creates it:", fmt.Sprintf("kubectl tranche why %s/%s -n %s", strings.ToLower(event.InvolvedObject.Kind), in.Name, in.Namespace))
				break
			}
		}
		e.remedy("fix what the message says; the pod is created again automatically. If a quota is exceeded, see:", "kubectl describe quota -n "+in.Namespace)
	}
	var others []string
	for _, p := range in.Pods {
		if strings.HasPrefix(p.Name, in.Name+"-") {
			others = append(others, p.Name)
		}
	}
	slices.Sort(others)
	if len(others) > 0 {
		e.remedy("ask about one of its pods: "+text.List(others, maxNamed), "")
	} else if len(e.Quotes) == 0 {
		e.remedy("see which pods there are:", "kubectl get pods -n "+in.Namespace)
	}
	return e
}
