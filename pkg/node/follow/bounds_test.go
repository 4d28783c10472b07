package follow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// named returns so many names.
func named(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("device-", i))
	}
	return names
}

// parts returns so many partitions.
func parts(n int) (all []v1beta1.PartitionReport) {
	for _, name := range named(n) {
		all = append(all, v1beta1.PartitionReport{Name: name})
	}
	return all
}

func TestReportsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", v1beta1.MaxReportText)
	r := &v1beta1.NodeReport{GPUCount: 32, UnhealthyGPUs: make([]v1beta1.UnhealthyGPU, v1beta1.MaxGPUs+1)}
	for range 32 {
		r.GPUs = append(r.GPUs, v1beta1.GPUReport{ProductName: long, Partitions: parts(200), HeldDevices: named(200), Problems: []v1beta1.GPUProblem{{Message: long}}, Pending: "p"})
	}
	bound(r)
	devices, texts := 0, 0
	for _, g := range r.GPUs {
		devices, texts = devices+len(g.HeldDevices)+len(g.Partitions), texts+len(v1beta1.ProblemText(g.Problems))+len(g.Pending)
		assert.LessOrEqual(t, max(len(g.HeldDevices), len(g.Partitions)), v1beta1.MaxGPUNames)
		assert.LessOrEqual(t, len(v1beta1.ProblemText(g.Problems)), v1beta1.MaxReportText)
		assert.LessOrEqual(t, len(g.ProductName), v1beta1.MaxProduct)
	}
	assert.Equal(t, v1beta1.MaxSumOfNames, devices)
	assert.Len(t, r.UnhealthyGPUs, v1beta1.MaxGPUs)
	assert.LessOrEqual(t, texts, v1beta1.MaxSumOfTexts)
	assert.Len(t, r.GPUs[0].HeldDevices, v1beta1.MaxGPUNames, "the first GPUs lose least")
	assert.Empty(t, r.GPUs[31].Partitions)
	for _, g := range r.GPUs {
		assert.NotEmpty(t, g.HeldDevices, "it is not free")
		assert.NotEmpty(t, v1beta1.ProblemText(g.Problems), "it is not healthy")
	}

	small := &v1beta1.NodeReport{GPUs: []v1beta1.GPUReport{{ProductName: "H100", Partitions: parts(7), HeldDevices: named(2), Problems: []v1beta1.GPUProblem{{Message: "a"}}, Pending: "b"}}}
	want := small.DeepCopy()
	bound(small)
	assert.Equal(t, want, small)

	r.GPUs = make([]v1beta1.GPUReport, v1beta1.MaxGPUs+1)
	bound(r)
	assert.Empty(t, r.GPUs, "they are counted only")
	assert.True(t, r.HasGPUs())
}

func TestVersionText(t *testing.T) {
	for version, want := range map[string]string{
		"": "", "v0.1.0-3-g12ab+dirty": "v0.1.0-3-g12ab+dirty", "1.0~rc1/a": "1.0-rc1-a", strings.Repeat("1", 65): strings.Repeat("1", 61) + "...",
	} {
		assert.Equal(t, want, versionText(version))
	}
}

// What a task keeps is never truncated.
func TestTasksAreBounded(t *testing.T) {
	task := v1beta1.Task{Phase: v1beta1.TaskPlanned, Message: strings.Repeat("x", 9999), Changes: []v1beta1.GPUChange{
		{GPU: "a", Description: strings.Repeat("y", 999), KeptDevices: named(v1beta1.MaxKeptDevices)},
	}}
	boundTask(&task)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase)
	assert.Len(t, task.Message, v1beta1.MaxReportText)
	assert.Len(t, task.Changes[0].Description, v1beta1.MaxChange)
	assert.Len(t, task.Changes[0].KeptDevices, v1beta1.MaxKeptDevices)

	for name, gpus := range map[string]int{"one GPU": 1, "all": 9} {
		each := v1beta1.MaxKeptDevices
		if gpus == 1 {
			each++
		}
		task := v1beta1.Task{Phase: v1beta1.TaskPlanned}
		for range gpus {
			task.Changes = append(task.Changes, v1beta1.GPUChange{KeptDevices: named(each)})
		}
		boundTask(&task)
		assert.Equal(t, v1beta1.TaskFailed, task.Phase, name)
		assert.Equal(t, names.ReasonInUse, task.Reason, name)
		assert.Contains(t, task.Message, fmt.Sprintf("claims hold %d devices on the %d GPUs that change", gpus*each, gpus))
	}
}
