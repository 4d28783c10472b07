package state

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// planOf is the plugin's plan for the current order of taints, nil if there is none yet. It was
// made after the API server accepted the taints, so the drain follows it.
func planOf(sw *v1alpha1.Switch, node *v1alpha1.NodeReport) *v1alpha1.Task {
	if sw == nil || node == nil || node.Task == nil {
		return nil
	}
	task := node.Task
	if task.Switch != sw.ID || task.State != v1alpha1.Tainted || task.Order != sw.Order {
		return nil
	}
	return task
}

// publishedFor reports whether the taints of the current order are published.
func publishedFor(sw *v1alpha1.Switch, node *v1alpha1.NodeReport) bool {
	return sw != nil && node != nil && node.Taints != nil && node.Taints.Switch == sw.ID && node.Taints.Order == sw.Order
}

// drainPlan is the plan to drain for, nil while there is none or it needs more taints first.
func drainPlan(sw *v1alpha1.Switch, node *v1alpha1.NodeReport) *v1alpha1.Task {
	plan := planOf(sw, node)
	if plan == nil || plan.Phase != v1alpha1.TaskPlanned || !publishedFor(sw, node) {
		return nil
	}
	if gpus, shrinking := grown(sw, plan); !sameSets(sw, gpus, shrinking) {
		return nil
	}
	return plan
}

// PlanStands reports whether there is a plan to drain for, and its taints are published.
func PlanStands(s *v1alpha1.GPUNodeStatus) bool { return drainPlan(s.Switch, s.Node) != nil }

// Drained are the GPUs to drain, and the devices on them whose holders may stay. For a reboot,
// all GPUs are drained.
func Drained(sw *v1alpha1.Switch, node *v1alpha1.NodeReport) (gpus []string, keeps map[string]bool) {
	keeps = map[string]bool{}
	if sw == nil || node == nil {
		return nil, keeps
	}
	if sw.RebootRequired {
		return gpuNames(node), keeps
	}
	plan := drainPlan(sw, node)
	if plan == nil {
		return nil, keeps
	}
	for i := range plan.Changes {
		for _, device := range plan.Changes[i].Keeps {
			keeps[device] = true
		}
	}
	return changing(plan), keeps
}

// changing are the GPUs of a plan whose hardware changes.
func changing(plan *v1alpha1.Task) []string {
	gpus := make([]string, 0, len(plan.Changes))
	for i := range plan.Changes {
		gpus = append(gpus, plan.Changes[i].GPU)
	}
	slices.Sort(gpus)
	return slices.Compact(gpus)
}

// shrinking are the names of GPUs that offer less afterwards and are not among the GPUs that
// change, sorted.
func shrinking(names, gpus []string) []string {
	var out []string
	for _, name := range names {
		if !slices.Contains(gpus, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// grown are the GPUs to taint for a switch after a plan. Their number never decreases, so a
// switch has a limited number of orders.
func grown(sw *v1alpha1.Switch, plan *v1alpha1.Task) (gpus, shrinks []string) {
	gpus = slices.Concat(sw.GPUs, changing(plan))
	slices.Sort(gpus)
	gpus = slices.Compact(gpus)
	return gpus, shrinking(slices.Concat(sw.Shrinking, plan.Shrinking), gpus)
}

func sameSets(sw *v1alpha1.Switch, gpus, shrinks []string) bool {
	return slices.Equal(sw.GPUs, gpus) && slices.Equal(sw.Shrinking, shrinks)
}

// order has the plugin taint GPUs and make a new plan.
func (t *turn) order(gpus, shrinks []string) {
	sw := t.Status.Switch
	sw.GPUs, sw.Shrinking = gpus, shrinks
	sw.Order++
	t.enter(v1alpha1.Tainted)
}

// invalid says what is wrong with a plan, empty if it is valid. Plans decide which pods are
// evicted, so they may name only GPUs of their node.
func (t *turn) invalid(plan *v1alpha1.Task) string {
	known := map[string]bool{}
	for i := range t.node.GPUs {
		known[t.node.GPUs[i].Name] = true
	}
	for _, name := range slices.Concat(changing(plan), plan.Shrinking) {
		if !known[name] {
			return fmt.Sprintf("the node's plugin plans to change GPU %q, which the node does not report; restart the plugin's pod on the node, and report it as a bug if it happens again",
				text.Cut(name, mostName))
		}
	}
	return ""
}

// mostName limits how much of an unknown name is quoted.
const mostName = 80

// gpuNames are the names of a node's GPUs.
func gpuNames(node *v1alpha1.NodeReport) []string {
	names := make([]string, 0, len(node.GPUs))
	for i := range node.GPUs {
		names = append(names, node.GPUs[i].Name)
	}
	slices.Sort(names)
	return names
}
