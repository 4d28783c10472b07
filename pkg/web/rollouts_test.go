package web

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

func TestStages(t *testing.T) {
	for now, want := range map[v1beta1.State]string{
		v1beta1.Draining:    "past Planning, past Waiting, past Tainted, now Draining, ahead Applying, ahead Verifying",
		v1beta1.Rebooting:   "past Planning, past Waiting, past Tainted, past Draining, now Rebooting, ahead Verifying",
		v1beta1.RollingBack: "past Planning, past Waiting, past Tainted, past Draining, past Applying, now RollingBack",
	} {
		var out strings.Builder
		require.NoError(t, stages(now).Render(&out))
		var got []string
		for _, step := range regexp.MustCompile(`<li class="(\w+)"[^>]*>(\w+)</li>`).FindAllStringSubmatch(out.String(), -1) {
			got = append(got, step[1]+" "+step[2])
		}
		assert.Equal(t, want, strings.Join(got, ", "))
	}
}

// How far a plan is, in a word: what the controller has not seen yet is known of no plan, and one that is over
// is paused no more.
func TestPlanInAWord(t *testing.T) {
	for _, test := range []struct {
		plan overview.Rollout
		want string
	}{
		{overview.Rollout{Paused: true, Rollout: cluster.Rollout{Result: cluster.RolloutComplete}}, "waiting for the controller"},
		{overview.Rollout{Known: true, Paused: true, Rollout: cluster.Rollout{Result: cluster.RolloutComplete, Reason: "Done"}}, string(cluster.RolloutComplete)},
		{overview.Rollout{Known: true, Paused: true, Rollout: cluster.Rollout{Reason: "Switching"}}, "Paused"},
		{overview.Rollout{Known: true, Rollout: cluster.Rollout{Reason: "Switching"}}, "Switching"},
	} {
		assert.Equal(t, test.want, word(test.plan))
	}
}

// A plan says when it will be done, as long as it is not.
func TestPlanThatGoesOn(t *testing.T) {
	done := time.Date(2026, 11, 20, 15, 30, 0, 0, time.UTC)
	draw := func(r cluster.Rollout) string {
		var out strings.Builder
		require.NoError(t, newFixture(t, 1).plan(overview.Rollout{Known: true, Rollout: r}).Render(&out))
		return out.String()
	}
	open := draw(cluster.Rollout{Plan: "p", Profile: "halves", Step: 2, Steps: 3, Done: &done, Failed: []v1beta1.PlanNode{{NodeName: "node-a"}}})
	for _, want := range []string{"done about 2026-11-20 15:30 UTC", "step 2 of 3", "profile halves", "1 failed", `href="/nodes/node-a"`} {
		assert.Contains(t, open, want)
	}
	over := draw(cluster.Rollout{Plan: "p", Step: 1, Steps: 1, Done: &done, Result: cluster.RolloutComplete})
	for _, not := range []string{"done about", "step 1", "failed</summary>", "set aside</summary>"} {
		assert.NotContains(t, over, not)
	}
}

func TestThousandsAreSeparated(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -123: "-123"} {
		assert.Equal(t, want, num(n))
	}
}
