package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/packing/replay"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

func TestFigures(t *testing.T) {
	const nodes = 10
	result := func(waits, fragmented float64, prompt int) replay.Result {
		return replay.Result{Large: 100, Prompt: prompt, Average: replay.Sample{
			Held: nodes*workload.GPUsPerNode - waits, Waiting: replay.Demand{waits}, Fragmented: fragmented,
		}}
	}
	good, bad := result(0, 1, 90), result(8, 8, 80)
	r := &Results{Nodes: nodes, Loads: []float64{0.95}, Of: map[Case][]replay.Result{
		{"trace", "profile", 0.95}:          {good, good},
		{"trace", "pod-affinity", 0.95}:     {good, bad},
		{"few-large", "pod-affinity", 0.95}: {bad},
		{"few-large", "best-fit", 0.95}:     {good},
	}}
	var out strings.Builder
	over, err := figures.Measure(t.Context(), &out, r.Figures(), "")
	require.NoError(t, err)
	assert.Equal(t, 3, over, out.String())
	for line, verdict := range map[string]string{
		"trace at 0.95, profile: demand that waits":                                               "ok",
		"trace at 0.95, profile: fragmentation":                                                   "ok",
		"trace at 0.95, pod-affinity: demand that waits":                                          "over",
		"trace at 0.95, pod-affinity: fragmentation":                                              "over",
		"few-large at 0.95, pod-affinity: large claims that do not start at once, above best fit": "over",
	} {
		assert.Regexp(t, line+` .* `+verdict+`\n`, out.String())
	}

	delete(r.Of, Case{"few-large", "best-fit", 0.95})
	assert.Len(t, r.Figures(), 4, "replays that did not run have no limits")
}
