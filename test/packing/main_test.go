package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/packing/options"
	"github.com/tranche-dev/tranche/test/packing/policy"
	"github.com/tranche-dev/tranche/test/packing/report"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

func TestReplayAll(t *testing.T) {
	t.Chdir("../..") // where the chart is
	s := settings{nodes: 4, claims: 100, seeds: 2, loads: []float64{0.5}}
	all, err := workload.All()
	require.NoError(t, err)
	policies, err := options.Chosen("-policy", "ascending,bound", policy.All(), func(p policy.Policy) string { return p.Name })
	require.NoError(t, err)
	results, err := s.replayAll(t.Context(), all[1:2], policies)
	require.NoError(t, err)
	assert.Equal(t, []string{"inference"}, results.Workloads)
	for _, p := range []string{"ascending", "bound"} {
		found := results.Of[report.Case{Workload: "inference", Policy: p, Load: 0.5}]
		require.Len(t, found, 2, p)
		for _, r := range found {
			assert.Equal(t, 75, r.Arrived, "the first quarter is not measured")
		}
	}
}

func TestRefusedSettings(t *testing.T) {
	require.ErrorContains(t, settings{workload: "x"}.run(t.Context()), "there are trace, inference, notebooks, few-large")
}
