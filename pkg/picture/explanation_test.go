package picture

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/golden"
)

// Each line of what a pod holds and asks for names the claim, and how a device that is not well is.
func TestExplanation(t *testing.T) {
	e := &why.Explanation{
		Summary: "Pod a waits.",
		Holds: []why.Holding{
			{DeviceKind: cluster.DeviceKind{Label: "1g.10gb"}, Device: "gpu-0", Pool: "node-a", Claim: "first"},
			{DeviceKind: cluster.DeviceKind{Label: "3g.40gb"}, Device: "gpu-1", Pool: "node-a", Claim: "second", Problems: []v1beta1.GPUProblem{{Cause: "lost", Message: "it is lost"}}},
		},
		Asks: []demand.Ask{{Request: "gpu", Text: "2 x 1g.10gb", Claim: "third"}, {Request: "other", Text: "a whole GPU"}},
	}
	assert.Equal(t, `Pod a waits.

It holds:
  1g.10gb  gpu-0 of node-a (claim first)
  3g.40gb  gpu-1 of node-a (claim second): it is lost

It asks for:
  gpu    2 x 1g.10gb, claim third
  other  a whole GPU
`, drawn(t, Screen{Width: 120}, func(p *Page) { DrawExplanation(p, e, false) }))
	assert.Equal(t, drawn(t, Screen{Width: MinWidth}, func(p *Page) { DrawExplanation(p, e, false) }), drawn(t, Screen{Width: 10}, func(p *Page) { DrawExplanation(p, e, false) }))
}

// unread is a right that a user lacks.
var unread = []text.Unread{{Message: "you are not allowed to list nodes"}}

// explained is a pod that waits, with a node of each kind.
func explained() *why.Explanation {
	held := []cluster.Holder{{Namespace: "team", Claim: "c", Pods: []string{"train-0"}}}
	taints := []cluster.Taint{{Key: "example.com/broken", Effect: "NoSchedule"}}
	free := []cluster.Fit{{DeviceKind: cluster.DeviceKind{Label: "1g.10gb"}, Count: 3}, {DeviceKind: cluster.DeviceKind{Label: "2g.20gb"}, Count: 1}}
	request := func(name, text string, v fit.Verdict) fit.Request {
		return fit.Request{Request: name, Text: text, Verdict: v}
	}
	full := request("gpu", "all 7 are held", fit.Full)
	full.Holders, full.Taints = held, taints
	alike, untainted, fits := full, full, request("other", "one is free", fit.Fits)
	alike.Request, untainted.Request, untainted.Taints, fits.Holders = "second", "third", nil, held
	return &why.Explanation{
		Namespace: "team", Pod: "a", Summary: "Pod team/a waits.", State: why.RoomNow,
		Nodes: []fit.Node{
			{Name: "never", Verdict: fit.Never, GPUs: "1 × L4", Requests: []fit.Request{full}},
			{Name: "together", Verdict: fit.NotTogether, Requests: []fit.Request{fits, full}, Free: free},
			{Name: "full", Verdict: fit.Full, GPUs: "8 × H100", Reasons: []string{"the node is cordoned"}, Requests: []fit.Request{full, alike, untainted, fits}, Free: free[:1]},
			{Name: "fits", Verdict: fit.Fits, GPUs: "8 × H100", Requests: []fit.Request{request("gpu", "one is free", fit.Fits)}, Free: free},
			{Name: "fits without devices", Verdict: fit.Fits},
		},
		Quotes: []why.Quote{
			{Who: "the scheduler", Reason: "Unschedulable", Message: "0/3 nodes are available\n"},
			{Who: "the kubelet about node-a", Reason: "FailedPrepare", Age: "5m", Count: 2, Message: "first line\nsecond line"},
			{Who: "Kueue", Reason: "Pending", Count: 1, Message: "no quota"},
		},
		Remedies: []fit.Remedy{{Text: "Wait for team/train-0."}, {Text: "Or end it:", Command: "kubectl delete pod -n team train-0"}},
		Unread:   unread,
	}
}

func TestExplanationOfNodes(t *testing.T) {
	e := explained()
	all := drawn(t, Screen{Width: 80}, func(p *Page) { DrawExplanation(p, e, false) })
	golden.Equal(t, "testdata/explanation.txt", all)
	for _, state := range []why.State{why.Unknown, why.NoRoom} {
		e.State = state
		assert.NotContains(t, drawn(t, Screen{Width: 80}, func(p *Page) { DrawExplanation(p, e, false) }), "fit here now", "what the scheduler says comes first")
	}
}

// Of many nodes the likeliest are explained; one more is, where its number would take as much room.
func TestExplanationOfManyNodes(t *testing.T) {
	const others = "\n\nOther nodes: 2 "
	for _, test := range []struct {
		nodes, shown int
		all          bool
	}{{6, 6, false}, {7, 7, false}, {8, 6, false}, {8, 8, true}} {
		e := &why.Explanation{}
		for i := range test.nodes {
			e.Nodes = append(e.Nodes, fit.Node{Name: fmt.Sprint("node-", i), Verdict: fit.Full})
		}
		e.Nodes[test.nodes-1].Verdict = fit.Fits
		got := drawn(t, Screen{Width: 80}, func(p *Page) { DrawExplanation(p, e, test.all) })
		assert.Equal(t, test.shown, strings.Count(got, "node-"), "%d nodes", test.nodes)
		assert.Contains(t, got, fmt.Sprint("node-", test.nodes-1), "the likeliest")
		assert.Equal(t, test.shown < test.nodes, strings.Contains(got, others), got)
	}
}

func TestExplanationOfAnOwner(t *testing.T) {
	pod := explained()
	pod.Nodes, pod.Unread = pod.Nodes[:1], []text.Unread{{Message: "you are not allowed to list events"}}
	e := &why.OwnerExplanation{
		Summary: "Job team/train has 3 of 4 pods.", Quotes: []why.Quote{{Who: "Kueue", Message: "admitted"}},
		Remedies: []fit.Remedy{{Text: "Ask for less."}}, Unread: unread,
		Groups: []why.Group{{Pods: []string{"x"}}, {Pods: []string{"b", "a", "c"}}},
		Pods:   []*why.Explanation{pod, {Pod: "x", Summary: "Pod team/x waits alone."}, {Pod: "y", Summary: "Pod team/y is in no group."}},
	}
	golden.Equal(t, "testdata/owner.txt", drawn(t, Screen{Width: 80}, func(p *Page) { DrawOwner(p, e, false) }))
	assert.Equal(t, []string{"b", "a", "c"}, e.Groups[1].Pods, "nothing is changed")
}

func TestAdvice(t *testing.T) {
	draw := func(a defrag.Advice) string {
		return drawn(t, Screen{Width: 80}, func(p *Page) { DrawAdvice(p, a) })
	}
	assert.Equal(t, "No pod waits for a GPU.\n", draw(defrag.Advice{}))
	pod := func(name string) v1beta1.PodReference { return v1beta1.PodReference{Namespace: "team", Name: name} }
	golden.Equal(t, "testdata/advice.txt", draw(defrag.Advice{Unread: unread, Pods: []defrag.PodAdvice{
		{Pod: pod("a"), Refusal: &defrag.Refusal{Reason: "NoPlan", Message: "Nothing can move."}},
		{Pod: pod("b"), NodeName: "node-a", Devices: []string{"gpu-0", "gpu-1"}, Moves: []defrag.MoveAdvice{
			{PodReference: pod("c"), FromDevices: []string{"gpu-0-mig"}, ToNodeName: "node-b", ToDevices: []string{"gpu-2-mig", "gpu-3-mig"}},
			{PodReference: pod("d"), FromDevices: []string{"gpu-1-mig"}, ToNodeName: "node-c", ToDevices: []string{"gpu-4-mig"}},
		}},
	}}))
}

func TestSwitchForecast(t *testing.T) {
	for want, n := range map[string]rollout.ForecastNode{
		"  evicts no pod\n":                       {},
		"  would fail: too many partitions\n":     {Unfit: "too many partitions", Evicts: []rollout.ForecastPod{{Name: "a"}}},
		"  evicts team/a\n":                       {Evicts: []rollout.ForecastPod{{Namespace: "team", Name: "a"}}},
		"  may evict team/a\n":                    {Unknown: []string{"gpu-0"}, Evicts: []rollout.ForecastPod{{Namespace: "team", Name: "a"}}},
		"  evicts team/a (nothing replaces it)\n": {Evicts: []rollout.ForecastPod{{Namespace: "team", Name: "a", NotReplaced: true}}},
		"  cannot be evicted: team/a: a budget\n": {Blocked: []rollout.ForecastBlocker{{ForecastPod: rollout.ForecastPod{Namespace: "team", Name: "a"}, Why: "a budget"}}},
		"  cannot be evicted: team/vms.example.com/a: not a pod\n": {Blocked: []rollout.ForecastBlocker{
			{ForecastPod: rollout.ForecastPod{Namespace: "team", Name: "a"}, APIGroup: "example.com", Resource: "vms", Why: "not a pod"},
		}},
	} {
		n.Name = "node-a"
		got := drawn(t, Screen{Width: 80}, func(p *Page) { DrawSwitchForecast(p, "halves", &n, unread) })
		assert.Equal(t, "Profile halves on node-a, by a dry run:\n"+want+"\nNote: You are not allowed to list nodes.\n", got)
	}
}
