package follow

import (
	"fmt"
	"regexp"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// notOfVersions are the characters that pluginVersion does not admit. Who builds the plugin chooses its
// version.
var notOfVersions = regexp.MustCompile(`[^A-Za-z0-9 _.:+-]`)

// versionText returns a version as the API server accepts it.
func versionText(version string) string {
	return text.Cut(notOfVersions.ReplaceAllString(version, "-"), v1beta1.MaxPluginVersion)
}

// leastProblem is how much of the problem of each GPU is left.
const leastProblem = 128

// bound truncates lists and texts of a report to what the API server accepts, those of the last
// GPUs first. Held devices have precedence over partitions, and problems over what is pending. A GPU
// with held devices keeps at least one, and one with a problem the beginning of it: others decide by
// whether there is any.
func bound(r *v1beta1.NodeReport) {
	if len(r.GPUs) > v1beta1.MaxGPUs {
		r.GPUs = nil
	}
	held, problems := 0, 0 // what is left for the GPUs that follow
	for i := range r.GPUs {
		held += min(len(r.GPUs[i].HeldDevices), 1)
		for _, p := range r.GPUs[i].Problems {
			problems += min(len(p.Message), leastProblem)
		}
	}
	devices, texts := v1beta1.MaxSumOfNames, v1beta1.MaxSumOfTexts
	for i := range r.GPUs {
		g := &r.GPUs[i]
		g.ProductName = text.Cut(g.ProductName, v1beta1.MaxProduct)
		held -= min(len(g.HeldDevices), 1)
		g.HeldDevices = g.HeldDevices[:min(len(g.HeldDevices), v1beta1.MaxGPUNames, devices-held)]
		devices -= len(g.HeldDevices)
		for j := range g.Problems {
			message := &g.Problems[j].Message
			problems -= min(len(*message), leastProblem)
			*message = text.Cut(*message, min(v1beta1.MaxReportText, texts-problems))
			texts -= len(*message)
		}
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		g.Partitions = g.Partitions[:min(len(g.Partitions), v1beta1.MaxGPUNames, devices)]
		g.Pending = text.Cut(g.Pending, min(v1beta1.MaxReportText, texts))
		devices, texts = devices-len(g.Partitions), texts-len(g.Pending)
	}
	r.UnhealthyGPUs = r.UnhealthyGPUs[:min(len(r.UnhealthyGPUs), v1beta1.MaxGPUs)]
}

// boundTask truncates texts of a task. A list of kept devices that is too long is not truncated,
// because the pods that hold the others would be evicted: the task fails.
func boundTask(task *v1beta1.Task) {
	kept, most := 0, 0
	for i := range task.Changes {
		c := &task.Changes[i]
		c.Description = text.Cut(c.Description, v1beta1.MaxChange)
		kept, most = kept+len(c.KeptDevices), max(most, len(c.KeptDevices))
	}
	if kept > v1beta1.MaxSumOfKept || most > v1beta1.MaxKeptDevices || len(task.Changes) > v1beta1.MaxGPUs {
		*task = v1beta1.Task{Phase: v1beta1.TaskFailed, Reason: names.ReasonInUse, Message: fmt.Sprintf(
			"claims hold %d devices on the %d GPUs that change; %d on one GPU, %d in all and %d GPUs are possible: release claims, or change fewer GPUs at a time",
			kept, len(task.Changes), v1beta1.MaxKeptDevices, v1beta1.MaxSumOfKept, v1beta1.MaxGPUs)}
	}
	task.Message = text.Cut(task.Message, v1beta1.MaxReportText)
}
