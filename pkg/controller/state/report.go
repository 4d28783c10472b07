package state

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

// reportOf returns the plugin's report for the current revision of the taint request, nil if there is
// none yet. It was made after the API server accepted the taints, so the drain follows it.
func reportOf(sw *v1beta1.Switch, node *v1beta1.NodeReport) *v1beta1.Task {
	if sw == nil || node == nil || node.Task == nil {
		return nil
	}
	task := node.Task
	if task.SwitchID != sw.ID || task.State != v1beta1.Tainted || task.TaintGeneration != sw.TaintGeneration {
		return nil
	}
	return task
}

// publishedFor reports whether the taints of the current revision are published.
func publishedFor(sw *v1beta1.Switch, node *v1beta1.NodeReport) bool {
	return node.PublishedTaints != nil && node.PublishedTaints.SwitchID == sw.ID && node.PublishedTaints.TaintGeneration == sw.TaintGeneration
}

// drainReport returns the report to drain for, nil while there is none or it needs more taints first.
func drainReport(sw *v1beta1.Switch, node *v1beta1.NodeReport) *v1beta1.Task {
	report := reportOf(sw, node)
	if report == nil || report.Phase != v1beta1.TaskPlanned || !publishedFor(sw, node) {
		return nil
	}
	if gpus, shrinking := grown(sw, report); !sameSets(sw, gpus, shrinking) {
		return nil
	}
	return report
}

// ReportCurrent reports whether there is a report to drain for, and its taints are published.
func ReportCurrent(s *v1beta1.GPUNodeStatus) bool { return drainReport(s.Switch, s.Node) != nil }

// Drained returns the GPUs to drain, and the devices on them whose holders may stay. For a reboot,
// all GPUs are drained.
func Drained(sw *v1beta1.Switch, node *v1beta1.NodeReport) (gpus []string, keeps map[string]bool) {
	keeps = map[string]bool{}
	if node == nil {
		return nil, keeps
	}
	if sw.RebootRequired {
		return gpuNames(node), keeps
	}
	report := drainReport(sw, node)
	if report == nil {
		return nil, keeps
	}
	for i := range report.Changes {
		for _, device := range report.Changes[i].KeptDevices {
			keeps[device] = true
		}
	}
	return changing(report), keeps
}

// changing returns the GPUs of a report whose hardware changes, sorted.
func changing(report *v1beta1.Task) []string {
	gpus := lists.Map(report.Changes, func(g v1beta1.GPUChange) string { return g.GPU })
	slices.Sort(gpus)
	return slices.Compact(gpus)
}

// shrinking returns the names of GPUs that offer less afterwards and are not among the GPUs that
// change, sorted.
func shrinking(names, gpus []string) []string {
	out := lists.Filter(names, func(name string) bool { return !slices.Contains(gpus, name) })
	slices.Sort(out)
	return slices.Compact(out)
}

// grown returns the GPUs to taint for a switch after a report. Their number never decreases, so a
// switch has a limited number of revisions of its taint request.
func grown(sw *v1beta1.Switch, report *v1beta1.Task) (gpus, shrinks []string) {
	gpus = slices.Concat(sw.GPUs, changing(report))
	slices.Sort(gpus)
	gpus = slices.Compact(gpus)
	return gpus, shrinking(slices.Concat(sw.ShrinkingGPUs, report.ShrinkingGPUs), gpus)
}

func sameSets(sw *v1beta1.Switch, gpus, shrinks []string) bool {
	return slices.Equal(sw.GPUs, gpus) && slices.Equal(sw.ShrinkingGPUs, shrinks)
}

// requestTaints requests taints on GPUs, after which the plugin reports the changes again.
func (e *evaluation) requestTaints(gpus, shrinks []string) {
	sw := e.Status.Switch
	sw.GPUs, sw.ShrinkingGPUs = gpus, shrinks
	sw.TaintGeneration++
	e.enter(v1beta1.Tainted)
}

// invalid returns what is wrong with a report, or "" if it is valid. Reports decide which pods are
// evicted, so they may name only GPUs of their node.
func (e *evaluation) invalid(report *v1beta1.Task) string {
	known := map[string]bool{}
	for i := range e.node.GPUs {
		known[e.node.GPUs[i].Name] = true
	}
	for _, name := range slices.Concat(changing(report), report.ShrinkingGPUs) {
		if !known[name] {
			return fmt.Sprintf("the node's plugin plans to change GPU %q, which the node does not report; restart the plugin's pod on the node, and report it as a bug if it happens again",
				text.Cut(name, mostName))
		}
	}
	return ""
}

// mostName limits how much of an unknown name is quoted.
const mostName = 80

// gpuNames returns the names of a node's GPUs, sorted.
func gpuNames(node *v1beta1.NodeReport) []string {
	names := lists.Map(node.GPUs, func(g v1beta1.GPUReport) string { return g.Name })
	slices.Sort(names)
	return names
}
