package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// ForecastInput is what a forecast is made of.
type ForecastInput struct {
	Plan *v1beta1.PartitionPlan
	// Target is what the nodes would get.
	Target v1beta1.ProfileSnapshot
	// Others are the other plans.
	Others   []v1beta1.PartitionPlan
	Nodes    []corev1.Node
	GPUNodes []v1beta1.GPUNode
	// Unavailable is how many nodes may be switched at once if the plan does not say: a number, or
	// a percentage of the plan's nodes.
	Unavailable intstr.IntOrString
	Now         time.Time
}

// Forecast is what a plan would do. `kubectl tranche plan -o json` prints its JSON form.
type Forecast struct {
	Plan    string `json:"planName"`
	Profile string `json:"profileName"`
	// Nodes are those that would be switched, in their order.
	Nodes []ForecastNode `json:"nodes"`
	// Others are selected nodes that would not be switched.
	Others []OtherNode `json:"otherNodes,omitempty"`
	Steps  int         `json:"stepCount"`
	// MaxUnavailable is how many nodes may be switched at once, MaxFailures how many may fail.
	MaxUnavailable int `json:"maxUnavailable"`
	MaxFailures    int `json:"maxFailures"`
	// Approvals is how many steps wait for an approval, which takes no time here.
	Approvals int `json:"approvalCount"`
	// Switch is the mean duration of the Observed switches, the last ones to the profile, or
	// to any profile; nil: there were none.
	Switch   *metav1.Duration `json:"meanSwitchDuration,omitempty"`
	Observed int              `json:"observedSwitchCount"`
	// Ends is when the last node would be done, nil: not known.
	Ends *time.Time `json:"estimatedCompletionTime,omitempty"`
	// Unread is what could not be read or tried.
	Unread []text.Unread `json:"unread,omitempty"`
}

// ForecastNode is a node that would be switched.
type ForecastNode struct {
	Name string `json:"nodeName"`
	// Step is its step, beginning with 1.
	Step int `json:"step"`
	// Evicts are pods that would be evicted, as far as could be tried, Blocked is what cannot be.
	// With one of these, the node is set aside.
	Evicts  []ForecastPod     `json:"evictions,omitempty"`
	Blocked []ForecastBlocker `json:"blockers,omitempty"`
	// Reason is ProfileDoesNotFit if the profile does not fit. Unfit says why.
	Reason string `json:"reason,omitempty"`
	Unfit  string `json:"message,omitempty"`
	// Unknown are GPUs of products that are not known, so all of their pods are listed.
	Unknown []string `json:"unknownGPUs,omitempty"`
}

// ForecastPod is a pod that holds devices of GPUs.
type ForecastPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// NotReplaced is true if no controller creates the pod again.
	NotReplaced bool `json:"notReplaced,omitempty"`
}

// ForecastBlocker is a pod that cannot be evicted, or something else that a claim is reserved for.
type ForecastBlocker struct {
	// Kind is Pod or OtherConsumer. Of the latter, APIGroup and Resource are those in the claim's status;
	// the status of a node that switches lists its devices.
	Kind     BlockerKind `json:"kind"`
	APIGroup string      `json:"apiGroup,omitempty"`
	Resource string      `json:"resource,omitempty"`
	ForecastPod
	Why string `json:"message"`
}

// BlockerKind is what a claim is reserved for that blocks a switch.
type BlockerKind string

// Kinds of blockers.
const (
	BlockerPod           BlockerKind = "Pod"
	BlockerOtherConsumer BlockerKind = "OtherConsumer"
)

// OtherNode is a node that would not be switched.
type OtherNode struct {
	Name   string `json:"nodeName"`
	Reason string `json:"reason"`
	Why    string `json:"message"`
}

// Predict returns the nodes of a plan in their order and steps.
func Predict(in ForecastInput) (Forecast, error) {
	out := Forecast{Plan: in.Plan.Name, Profile: in.Plan.Spec.ProfileName, Nodes: []ForecastNode{}}
	selects, err := Selector(in.Plan)
	if err != nil {
		return out, err
	}
	byName := map[string]*corev1.Node{}
	for i := range in.Nodes {
		byName[in.Nodes[i].Name] = &in.Nodes[i]
	}
	var nodes []*Node
	eligible, done := 0, 0
	for i := range in.GPUNodes {
		g := &in.GPUNodes[i]
		node := byName[g.Name]
		if node == nil || !selects.Matches(labels.Set(node.Labels)) || g.Status.Node != nil && !g.Status.Node.HasGPUs() {
			continue
		}
		reason, why, counts := in.notSwitched(g, node)
		if counts {
			eligible++
		}
		if reason == names.ReasonApplied {
			done++
		}
		if reason != "" {
			out.Others = append(out.Others, OtherNode{Name: g.Name, Reason: reason, Why: why})
			continue
		}
		n := Observe(g, node.Labels, NodeReady(node), in.Now)
		nodes = append(nodes, &n)
	}
	if len(nodes)+len(out.Others) == 0 {
		return out, fmt.Errorf("spec.nodeSelector selects no node with GPUs: %s", selects)
	}
	slices.SortFunc(out.Others, func(a, b OtherNode) int { return cmp.Compare(a.Name, b.Name) })
	strategy := &in.Plan.Spec.Strategy
	Ordered(nodes, strategy.Order)
	steps := stepsOf(strategy, eligible)
	out.Steps = len(steps)
	for i, n := range nodes {
		step := 1
		for !steps[step-1].last && done+i >= steps[step-1].nodes {
			step++
		}
		out.Nodes = append(out.Nodes, ForecastNode{Name: n.Name, Step: step})
	}
	out.MaxUnavailable = max(1, Scaled(cmp.Or(strategy.MaxUnavailable, &in.Unavailable), eligible, false))
	out.MaxFailures = Scaled(&strategy.MaxFailures, eligible, false)
	out.Switch, out.Observed = observed(in.GPUNodes, in.Target.ProfileName)
	for _, s := range steps {
		if s.approval && !s.last {
			out.Approvals++
		}
	}
	return out, nil
}

// notSwitched says why a selected node would not be switched, with an empty reason: it would be. counts reports
// whether it is one of those that can get the target.
func (in *ForecastInput) notSwitched(g *v1beta1.GPUNode, node *corev1.Node) (reason, why string, counts bool) {
	if ControlPlane(node) {
		return names.ReasonControlPlaneNotNamed, "it belongs to the control plane", false
	}
	for i := range in.Others {
		if p := &in.Others[i]; p.Name != in.Plan.Name && in.precedes(p) && Gives(p) && Selects(p, node) {
			return names.ReasonOtherPlan, fmt.Sprintf("plan %s has it, with priority %d", p.Name, p.Spec.Priority), false
		}
	}
	if from := g.Annotations[names.AnnotationProfileFrom]; from != "" && g.Spec.ProfileName != "" {
		return names.ReasonPlanOverridden, fmt.Sprintf("its label %s has precedence", from), false
	}
	if g.Spec.ProfileName != "" {
		return names.ReasonPlanOverridden, fmt.Sprintf("spec.profileName %s of its GPUNode has precedence", g.Spec.ProfileName), false
	}
	if g.Spec.Paused {
		return names.ReasonPaused, "spec.paused of its GPUNode is true", false
	}
	s := &g.Status
	switch {
	case s.Applied != nil && s.Applied.Hash == in.Target.Hash:
		return names.ReasonApplied, "it has the profile already", true
	case s.Node == nil:
		return names.ReasonNoReport, "its plugin has not reported yet", true
	case len(s.Node.OtherSystems) > 0:
		return names.ReasonOtherSystem, "another system serves its GPUs: " + s.Node.OtherSystems[0].Message, true
	case !NodeReady(node):
		return names.ReasonNotReady, "it is not ready", true
	}
	return "", "", true
}

// precedes reports whether another plan has precedence over this one, which may not exist yet.
func (in *ForecastInput) precedes(p *v1beta1.PartitionPlan) bool {
	if in.Plan.CreationTimestamp.IsZero() {
		return p.Spec.Priority >= in.Plan.Spec.Priority
	}
	return ComparePlans(p, in.Plan) < 0
}

// observed returns the mean duration of the successful switches to a profile, or else to any, and
// how many they are.
func observed(nodes []v1beta1.GPUNode, profile string) (*metav1.Duration, int) {
	var sum, sumOfAll time.Duration
	n, all := 0, 0
	for i := range nodes {
		for _, r := range nodes[i].Status.History {
			if r.Result != v1beta1.ResultSucceeded {
				continue
			}
			sumOfAll, all = sumOfAll+r.Duration.Duration, all+1
			if r.ToProfileName == profile {
				sum, n = sum+r.Duration.Duration, n+1
			}
		}
	}
	if n == 0 {
		sum, n = sumOfAll, all
	}
	if n == 0 {
		return nil, 0
	}
	return &metav1.Duration{Duration: sum / time.Duration(n)}, n
}
