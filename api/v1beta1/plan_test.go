package v1beta1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func planOf(spec string) string {
	return "apiVersion: tranche.dev/v1beta1\nkind: PartitionPlan\nmetadata: {name: p}\nspec: {" + spec + "}"
}

func TestGoodPlans(t *testing.T) {
	r := load(t, "partitionplans")
	for _, spec := range []string{
		"", "nodeSelector: {}", "nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}",
		"priority: -1, paused: true", "strategy: {}",
		"strategy: {steps: [{nodes: 2, soak: 10m}, {nodes: 10%, approval: true}, {nodes: 100%}], maxUnavailable: 5%, maxFailures: 2, onFailure: Undo}",
		"strategy: {topology: {key: topology.kubernetes.io/zone, maxUnavailable: 1}, order: {by: Label, label: rack}, maxFailures: 0%}",
		"strategy: {order: {by: Emptiest}, maxUnavailable: 1, maxFailures: 0, onFailure: Pause}",
		"strategy: {windows: [{days: [Saturday, Sunday], start: '22:00', end: '06:00', timeZone: Europe/Berlin}, {start: '00:00', end: '23:59'}]}",
		"strategy: {windows: [{start: '01:00', end: '02:00', timeZone: Etc/GMT+5}, {start: '01:00', end: '02:00', timeZone: America/Argentina/Buenos_Aires}]}",
		"approved: {revision: 1, step: 1}, accepted: {revision: 2, failures: 1}, undo: {revision: 3, to: 0}",
	} {
		assert.Empty(t, r.judge(t, planOf("profile: x, "+spec)), spec)
	}
}

func TestBadPlans(t *testing.T) {
	r := load(t, "partitionplans")
	for spec, want := range map[string]string{
		"profile: ''":                                          "spec.profileName: Invalid value",
		"profile: A":                                           "spec.profileName: Invalid value",
		"strategy: {}":                                         "spec.profileName: Required value",
		"profile: x, pause: true":                              "spec.pause: unknown",
		"profile: x, strategy: {a: 1}":                         "spec.strategy.a: unknown",
		"profile: x, strategy: {maxUnavailable: 0}":            "spec.strategy.maxUnavailable: Invalid value: must be 1 to 1000000, or 1% to 100%",
		"profile: x, strategy: {maxUnavailable: 0%}":           "spec.strategy.maxUnavailable: Invalid value",
		"profile: x, strategy: {maxUnavailable: '5'}":          "spec.strategy.maxUnavailable: Invalid value",
		"profile: x, strategy: {maxUnavailable: 101%}":         "spec.strategy.maxUnavailable: Invalid value",
		"profile: x, strategy: {maxFailures: -1}":              "spec.strategy.maxFailures: Invalid value: must be 0 to 1000000, or 0% to 100%",
		"profile: x, strategy: {maxFailures: 3000000000}":      "spec.strategy.maxFailures: Invalid value: must be 0 to 1000000",
		"profile: x, strategy: {steps: [{nodes: 3000000000}]}": "spec.strategy.steps[0].nodes: Invalid value: must be 1 to 1000000",
		"profile: x, nodeSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}":           "spec.nodeSelector.matchExpressions: Invalid value: operator must be In or NotIn with values",
		"profile: x, nodeSelector: {matchExpressions: [{key: a, operator: NotIn}]}":                     "spec.nodeSelector.matchExpressions: Invalid value: operator must be In or NotIn with values",
		"profile: x, strategy: {maxFailures: 05%}":                                                      "spec.strategy.maxFailures: Invalid value",
		"profile: x, strategy: {steps: [{soak: 1m}]}":                                                   "spec.strategy.steps[0].nodes: Required value",
		"profile: x, strategy: {steps: [{nodes: 0}]}":                                                   "spec.strategy.steps[0].nodes: Invalid value: must be 1 to 1000000, or 1% to 100%",
		"profile: x, strategy: {steps: [{nodes: 0%}]}":                                                  "spec.strategy.steps[0].nodes: Invalid value",
		"profile: x, strategy: {steps: [{nodes: 1, soak: 5}]}":                                          "spec.strategy.steps[0].soak: Invalid value",
		"profile: x, strategy: {steps: [{nodes: 1, soak: 721h}]}":                                       "spec.strategy.steps[0].soak: Invalid value: must be 0s to 720h",
		"profile: x, strategy: {steps: [" + strings.Repeat("{nodes: 1},", 17) + "]}":                    "spec.strategy.steps: Too many: 17: must have at most 16 items",
		"profile: x, strategy: {topology: {key: zone, maxUnavailable: 0}}":                              "spec.strategy.topology.maxUnavailable: Invalid value: must be 1 to 1000000",
		"profile: x, strategy: {topology: {maxUnavailable: 1}}":                                         "spec.strategy.topology.key: Required value",
		"profile: x, strategy: {order: {by: Name}}":                                                     `spec.strategy.order.by: Unsupported value: "Name"`,
		"profile: x, strategy: {order: {by: Label}}":                                                    "spec.strategy.order.label: Invalid value: is for by: Label, which needs it",
		"profile: x, strategy: {order: {by: Emptiest, label: a}}":                                       "spec.strategy.order.label: Invalid value: is for by: Label",
		"profile: x, strategy: {windows: [{start: '24:00', end: '06:00'}]}":                             "spec.strategy.windows[0].start: Invalid value",
		"profile: x, strategy: {windows: [{start: '06:00', end: '06:00'}]}":                             "spec.strategy.windows[0].end: Invalid value: must differ from start",
		"profile: x, strategy: {windows: [{start: '06:00', end: '07:00', days: [Mon]}]}":                `spec.strategy.windows[0].days[0]: Unsupported value: "Mon"`,
		"profile: x, strategy: {windows: [{start: '06:00', end: '07:00', timeZone: ../../etc/passwd}]}": "spec.strategy.windows[0].timeZone: Invalid value",
		"profile: x, strategy: {onFailure: Continue}":                                                   `spec.strategy.onFailure: Unsupported value: "Continue"`,
		"profile: x, approved: {revision: 0, step: 1}":                                                  "spec.approved.revision: Invalid value",
		"profile: x, accepted: {revision: 1, failures: 0}":                                              "spec.accepted.failures: Invalid value",
		"profile: x, undo: {revision: 1, to: -1}":                                                       "spec.undo.to: Invalid value",
		"profile: x, undo: {revision: 1}":                                                               "spec.undo.to: Required value",
	} {
		assert.Contains(t, r.judge(t, planOf(spec)), want, fmt.Sprintf("%.100s", spec))
	}
}
