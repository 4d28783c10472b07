package defrag

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// Advice says which pods could move for waiting pods. `kubectl tranche defrag` prints its JSON form.
type Advice struct {
	// Pods are the waiting pods. The plan of each is made as if no other pod waited.
	Pods []PodAdvice `json:"items"`
	// Unread is what could not be read.
	Unread []text.Unread `json:"unread,omitempty"`
}

// PodAdvice is a waiting pod with its plan, or with the reason why there is none. It has the names of
// the defragmentations that the controller begins.
type PodAdvice struct {
	Pod      v1beta1.PodReference `json:"pod"`
	NodeName string               `json:"nodeName,omitempty"`
	Devices  []string             `json:"devices,omitempty"`
	Moves    []MoveAdvice         `json:"moves,omitempty"`
	Refusal  *Refusal             `json:"refusal,omitempty"`
}

// MoveAdvice is a pod that would move from its devices to devices of a node.
type MoveAdvice struct {
	v1beta1.PodReference `json:",inline"`
	FromDevices          []string `json:"fromDevices"`
	ToNodeName           string   `json:"toNodeName"`
	ToDevices            []string `json:"toDevices"`
}

// impossible refuses a pod that fits on no node even if no claim held a device, nil if it may fit.
func (p *Planner) impossible(ctx context.Context, pod *corev1.Pod) *Refusal {
	waiting, refusal := p.waiting(ctx, pod)
	if refusal != nil {
		return nil //nolint:nilerr // Plan has said so
	}
	d := demand.Of(demand.Input{Pod: pod, Classes: p.in.Classes, Storage: p.storageOf(pod)})
	d.Unallocated = waiting.claims
	if p.model == nil {
		p.model = fit.NewModel(p.in.Objects, false)
	}
	nodes := p.model.Nodes(ctx, d, nil)
	if ctx.Err() != nil || slices.ContainsFunc(nodes, func(n fit.Node) bool {
		return n.Verdict != fit.Lacking && n.Verdict != fit.Never && n.Verdict != fit.Excluded
	}) {
		return nil //nolint:nilerr // the refusal of Plan stands
	}
	return refuse(Impossible, "No move makes room for pod %s: %s.", waiting, fit.Summary(nodes))
}

// Advise looks for a plan for a pod. An error means that the context has ended.
func (p *Planner) Advise(ctx context.Context, pod *corev1.Pod) (PodAdvice, error) {
	out := PodAdvice{Pod: v1beta1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	plan, err := p.Plan(ctx, pod)
	if errors.As(err, &out.Refusal) {
		if impossible := p.impossible(ctx, pod); impossible != nil {
			out.Refusal = impossible
		}
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.NodeName, out.Devices = plan.Node, Names(plan.Devices)
	for _, m := range plan.Moves {
		pod := v1beta1.PodReference{Namespace: m.Pod.Namespace, Name: m.Pod.Name, UID: m.UID}
		out.Moves = append(out.Moves, MoveAdvice{pod, Names(m.From), m.Node, Names(m.To)})
	}
	return out, nil
}
