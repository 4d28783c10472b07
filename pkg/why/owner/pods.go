package owner

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Waits is how a pod waits, for programs.
type Waits string

// The ways in which pods wait.
const (
	Gated       Waits = "Gated"
	Unscheduled Waits = "Unscheduled"
	Starting    Waits = "Starting"
	NotReady    Waits = "NotReady"
	Leaving     Waits = "Terminating"
)

// words are the ways in words, the one first that is explained first.
var words = []struct {
	Waits
	one, many string
}{
	{Unscheduled, "waits for a node", "wait for a node"},
	{Gated, "is not to be scheduled yet", "are not to be scheduled yet"},
	{Starting, "is being started", "are being started"},
	{NotReady, "runs and is not ready", "run and are not ready"},
	{Leaving, "is being deleted", "are being deleted"},
}

func waits(p *corev1.Pod) Waits {
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return ""
	case p.DeletionTimestamp != nil:
		return Leaving
	case p.Spec.NodeName == "" && len(p.Spec.SchedulingGates) > 0:
		return Gated
	case p.Spec.NodeName == "":
		return Unscheduled
	case p.Status.Phase == corev1.PodPending:
		return Starting
	case !ready(p):
		return NotReady
	}
	return ""
}

func ready(p *corev1.Pod) bool {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	return i >= 0 && p.Status.Conditions[i].Status == corev1.ConditionTrue
}

// grouped are pods by how they wait.
func grouped(pods []*corev1.Pod) []Group {
	var out []Group
	for _, w := range words {
		var names []string
		for _, p := range pods {
			if waits(p) == w.Waits {
				names = append(names, p.Name)
			}
		}
		if len(names) > 0 {
			out = append(out, Group{Waits: w.Waits, Pods: names})
		}
	}
	return out
}

func older(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func labelsOf(p *corev1.Pod) labels.Labels { return labels.Set(p.Labels) }
