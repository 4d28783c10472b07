package web

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
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
