package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/test/packing/replay"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const eightGPUs = 8

func TestTables(t *testing.T) {
	one := func(held float64) replay.Result {
		return replay.Result{
			Average: replay.Sample{Held: held, Used: 5, UsedNodes: 1, Fragmented: 0.4, Waiting: replay.Demand{workload.WholeGPU: 0.5, eightGPUs: 0.5}},
			Arrived: 4, Delayed: 1, Early: 2, Late: 1, Large: 4, Accepted: 3, Prompt: 2, Moved: 0.005, Changes: 2,
			Scheduler: replay.Scheduler{CPU: 0.05, Writes: 7, SliceWrites: 0.1},
		}
	}
	r := Results{Nodes: 1, Workloads: []string{"mix"}, Loads: []float64{0.8}, Policies: []string{"default", "not replayed"},
		Of: map[Case][]replay.Result{{"mix", "default", 0.8}: {one(4), one(3)}}}
	var b strings.Builder
	r.Write(&b)
	assert.Contains(t, b.String(), "| 0.80 | default | 22.5 % | 25.00 % | 50.00 % | 75.00 % | 50.00 % | 43.8 % | 5 | 1 | 5.0 % | 0.50 % | 0.50 |\n\n")
	assert.Contains(t, b.String(), "| 0.80 | default | 0.00 % | 0.00 % | 0.00 % | 0.00 % | 0.00 % | 11.25 % | 0.00 % | 0.00 % | 11.25 % |\n")
	b.Reset()
	r.Real = true
	r.Write(&b)
	assert.Contains(t, b.String(), "| 5.0 % | 50 ms | 7.0 | 0.10 |\n")
}
