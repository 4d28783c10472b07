package defrag

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
)

// Advice says which pods could move for waiting pods. `kubectl tranche defrag` prints its JSON form.
type Advice struct {
	// Pods are the waiting pods. The plan of each is made as if no other pod waited.
	Pods []PodAdvice `json:"items"`
	// Notes say what could not be read and what follows from that.
	Notes []string `json:"notes,omitempty"`
}

// PodAdvice is a waiting pod with its plan, or with the reason why there is none.
type PodAdvice struct {
	Namespace string       `json:"namespace"`
	Pod       string       `json:"pod"`
	Node      string       `json:"node,omitempty"`
	Devices   []Device     `json:"devices,omitempty"`
	Moves     []MoveAdvice `json:"moves,omitempty"`
	Refusal   *Refusal     `json:"refusal,omitempty"`
}

// MoveAdvice is a pod that would move from its devices to devices of a node.
type MoveAdvice struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	From      []Device `json:"from"`
	Node      string   `json:"node"`
	To        []Device `json:"to"`
}

// Advise looks for a plan for a pod. An error means that the context has ended.
func (p *Planner) Advise(ctx context.Context, pod *corev1.Pod) (PodAdvice, error) {
	out := PodAdvice{Namespace: pod.Namespace, Pod: pod.Name}
	plan, err := p.Plan(ctx, pod)
	if errors.As(err, &out.Refusal) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Node, out.Devices = plan.Node, plan.Devices
	for _, m := range plan.Moves {
		out.Moves = append(out.Moves, MoveAdvice{Namespace: m.Pod.Namespace, Pod: m.Pod.Name, From: m.From, Node: m.Node, To: m.To})
	}
	return out, nil
}
