package follow

import (
	"fmt"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// bound truncates lists and texts of a report to what the API server accepts, those of the last
// GPUs first. Held devices have precedence over partitions.
func bound(r *v1beta1.NodeReport) {
	if len(r.GPUs) > v1beta1.MaxGPUs {
		r.GPUs = nil
	}
	devices, texts := v1beta1.MaxSumOfNames, v1beta1.MaxSumOfTexts
	for i := range r.GPUs {
		g := &r.GPUs[i]
		g.Product = text.Cut(g.Product, v1beta1.MaxProduct)
		for _, list := range []*[]string{&g.HeldDevices, &g.Partitions} {
			*list = (*list)[:min(len(*list), v1beta1.MaxGPUNames, devices)]
			devices -= len(*list)
		}
		for _, t := range []*string{&g.Problem, &g.Pending} {
			*t = text.Cut(*t, min(v1beta1.MaxReportText, texts))
			texts -= len(*t)
		}
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
