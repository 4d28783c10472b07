package v1beta1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func planOf(spec string) string {
	if !strings.Contains(spec, "nodeSelector") {
		spec = "nodeSelector: {}, " + spec
	}
	return "apiVersion: tranche.dev/v1beta1\nkind: PartitionPlan\nmetadata: {name: p}\nspec: {" + spec + "}"
}

func TestGoodPlans(t *testing.T) {
	r := load(t, "partitionplans")
	for _, spec := range []string{
		"", "nodeSelector: {}", "nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d, '']}, {key: example.com/d, operator: Exists}]}",
		"priority: -1, paused: true", "strategy: {}", "strategy: {steps: [{nodes: 9}, {nodes: 5%}, {nodes: 10}, {nodes: 100%}]}",
		"strategy: {steps: [{nodes: 2, soak: 10m}, {nodes: 10%, approval: true}, {nodes: 100%}], maxUnavailable: 5%, maxFailures: 2, onFailure: Undo}",
		"strategy: {topologyLimits: [{topologyKey: topology.kubernetes.io/zone, maxUnavailable: 1}, {topologyKey: rack, maxUnavailable: 50%}], order: {by: Label, labelKey: rack}, maxFailures: 0%}",
		"strategy: {order: {by: Emptiest}, maxUnavailable: 1, maxFailures: 0, onFailure: Stop}",
		"strategy: {windows: [{days: [Saturday, Sunday], start: '22:00', end: '06:00', timeZone: Europe/Berlin}, {start: '00:00', end: '23:59'}]}",
		"strategy: {windows: [{start: '01:00', end: '02:00', timeZone: Etc/GMT+5}, {start: '01:00', end: '02:00', timeZone: America/Argentina/Buenos_Aires}]}",
		"rejected: {revision: 3, revisionHash: c, fallback: {revision: 2, revisionHash: b}}",
		"approved: {revision: 1, revisionHash: a, step: 1}, accepted: {revision: 2, revisionHash: b, failedNodeCount: 1}, rejected: {revision: 3, revisionHash: c}",
	} {
		assert.Empty(t, r.judge(t, planOf("profileName: x, "+spec)), spec)
	}
}

func TestBadPlans(t *testing.T) {
	r := load(t, "partitionplans")
	const steps = "spec.strategy.steps: Invalid value: nodes includes those of earlier steps, so numbers must increase, and so must percentages"
	for spec, want := range map[string]string{
		"profileName: ''":                                          "spec.profileName: Invalid value",
		"profileName: A":                                           "spec.profileName: Invalid value",
		"strategy: {}":                                             "spec.profileName: Required value",
		"profileName: x, pause: true":                              "spec.pause: unknown",
		"profileName: x, strategy: {a: 1}":                         "spec.strategy.a: unknown",
		"profileName: x, strategy: {maxUnavailable: 0}":            "spec.strategy.maxUnavailable: Invalid value: must be 1 to 1000000, or 1% to 100%",
		"profileName: x, strategy: {maxUnavailable: 0%}":           "spec.strategy.maxUnavailable: Invalid value",
		"profileName: x, strategy: {maxUnavailable: '5'}":          "spec.strategy.maxUnavailable: Invalid value",
		"profileName: x, strategy: {maxUnavailable: 101%}":         "spec.strategy.maxUnavailable: Invalid value",
		"profileName: x, strategy: {maxFailures: -1}":              "spec.strategy.maxFailures: Invalid value: must be 0 to 1000000, or 0% to 100%",
		"profileName: x, strategy: {maxFailures: 3000000000}":      "spec.strategy.maxFailures: Invalid value: must be 0 to 1000000",
		"profileName: x, strategy: {steps: [{nodes: 3000000000}]}": "spec.strategy.steps[0].nodes: Invalid value: must be 1 to 1000000",
		"profileName: x, nodeSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}":                                `spec.nodeSelector.matchExpressions[0].operator: Unsupported value: "in"`,
		"profileName: x, nodeSelector: {matchExpressions: [{key: a, operator: NotIn}]}":                                          "spec.nodeSelector.matchExpressions[0].values: Invalid value: In and NotIn need values",
		"profileName: x, nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}":                            "spec.nodeSelector.matchExpressions[0].values: Invalid value: In and NotIn need values",
		"profileName: x, nodeSelector: {matchExpressions: [{key: a b, operator: Exists}]}":                                       "spec.nodeSelector.matchExpressions[0].key: Invalid value",
		"profileName: x, nodeSelector: {matchLabels: {a: " + strings.Repeat("b", 64) + "}}":                                      "spec.nodeSelector.matchLabels: Invalid value: must be names and values of labels",
		"profileName: x, nodeSelector: {matchLabels: {" + strings.Repeat("b", 318) + ": c}}":                                     "spec.nodeSelector.matchLabels: Invalid value: must be names and values of labels",
		"profileName: x, strategy: {maxFailures: 05%}":                                                                           "spec.strategy.maxFailures: Invalid value",
		"profileName: x, strategy: {steps: [{soak: 1m}]}":                                                                        "spec.strategy.steps[0].nodes: Required value",
		"profileName: x, strategy: {steps: [{nodes: 0}]}":                                                                        "spec.strategy.steps[0].nodes: Invalid value: must be 1 to 1000000, or 1% to 100%",
		"profileName: x, strategy: {steps: [{nodes: 0%}]}":                                                                       "spec.strategy.steps[0].nodes: Invalid value",
		"profileName: x, strategy: {steps: [{nodes: 1, soak: 5}]}":                                                               "spec.strategy.steps[0].soak: Invalid value",
		"profileName: x, strategy: {steps: [{nodes: 1, soak: 721h}]}":                                                            "spec.strategy.steps[0].soak: Invalid value: must be 0s to 720h",
		"profileName: x, strategy: {steps: [" + strings.Repeat("{nodes: 1},", 17) + "]}":                                         "spec.strategy.steps: Too many: 17: must have at most 16 items",
		"profileName: x, strategy: {steps: [{nodes: 1}, {nodes: 1}]}":                                                            steps,
		"profileName: x, strategy: {steps: [{nodes: 2}, {nodes: 10%}, {nodes: 1}]}":                                              steps,
		"profileName: x, strategy: {steps: [{nodes: 10%}, {nodes: 2}, {nodes: 9%}]}":                                             steps,
		"profileName: x, strategy: {steps: [{nodes: 10%}, {nodes: 10%}]}":                                                        steps,
		"profileName: x, strategy: {topologyLimits: [{topologyKey: zone, maxUnavailable: 0}]}":                                   "spec.strategy.topologyLimits[0].maxUnavailable: Invalid value: must be 1 to 1000000",
		"profileName: x, strategy: {topologyLimits: [{maxUnavailable: 1}]}":                                                      "spec.strategy.topologyLimits[0].topologyKey: Required value",
		"profileName: x, strategy: {topologyLimits: [{topologyKey: a, maxUnavailable: 1}, {topologyKey: a, maxUnavailable: 2}]}": "spec.strategy.topologyLimits[1]: Duplicate value",
		"profileName: x, strategy: {topologyLimits: [" + strings.Repeat("{topologyKey: a, maxUnavailable: 1},", 5) + "]}":        "spec.strategy.topologyLimits: Too many: 5",
		"profileName: x, strategy: {order: {by: Name}}":                                                                          `spec.strategy.order.by: Unsupported value: "Name"`,
		"profileName: x, strategy: {order: {by: Label}}":                                                                         "spec.strategy.order.labelKey: Invalid value: is for by: Label, which needs it",
		"profileName: x, strategy: {order: {by: Emptiest, labelKey: a}}":                                                         "spec.strategy.order.labelKey: Invalid value: is for by: Label",
		"profileName: x, strategy: {windows: [{start: '24:00', end: '06:00'}]}":                                                  "spec.strategy.windows[0].start: Invalid value",
		"profileName: x, strategy: {windows: [{start: '06:00', end: '06:00'}]}":                                                  "spec.strategy.windows[0].end: Invalid value: must differ from start",
		"profileName: x, strategy: {windows: [{start: '06:00', end: '07:00', days: [Mon]}]}":                                     `spec.strategy.windows[0].days[0]: Unsupported value: "Mon"`,
		"profileName: x, strategy: {windows: [{start: '06:00', end: '07:00', timeZone: ../../etc/passwd}]}":                      "spec.strategy.windows[0].timeZone: Invalid value",
		"profileName: x, strategy: {windows: []}":                                                                                "spec.strategy.windows: Invalid value: 0: spec.strategy.windows in body should have at least 1 items",
		"profileName: x, strategy: {windows: [{start: '06:00', end: '07:00', days: []}]}":                                        "spec.strategy.windows[0].days: Invalid value: 0: spec.strategy.windows[0].days in body should have at least 1 items",
		"profileName: x, strategy: {topologyLimits: []}":                                                                         "spec.strategy.topologyLimits: Invalid value: 0: spec.strategy.topologyLimits in body should have at least 1 items",
		"profileName: x, strategy: {onFailure: Continue}":                                                                        `spec.strategy.onFailure: Unsupported value: "Continue"`,
		"profileName: x, approved: {revision: 0, revisionHash: a, step: 1}":                                                      "spec.approved.revision: Invalid value",
		"profileName: x, approved: {revision: 1, step: 1}":                                                                       "spec.approved.revisionHash: Required value",
		"profileName: x, accepted: {revision: 1, revisionHash: a, failedNodeCount: 0}":                                           "spec.accepted.failedNodeCount: Invalid value",
		"profileName: x, accepted: {revision: 1, failedNodeCount: 1}":                                                            "spec.accepted.revisionHash: Required value",
		"profileName: x, rejected: {revision: 1, revisionHash: ''}":                                                              "spec.rejected.revisionHash: Invalid value",
		"profileName: x, rejected: {fallback: {revision: 1, revisionHash: a}}":                                                   "spec.rejected.revision: Required value",
		"profileName: x, rejected: {revision: 2, revisionHash: b, fallback: {revision: 1}}":                                      "spec.rejected.fallback.revisionHash: Required value",
		"profileName: x, rejected: {revision: 2, revisionHash: b, fallback: {revision: 2, revisionHash: b}}":                     "spec.rejected.fallback: Invalid value: must be before the rejected revision",
	} {
		assert.Contains(t, r.judge(t, planOf(spec)), want, fmt.Sprintf("%.100s", spec))
	}
	assert.Contains(t, r.judge(t, strings.Replace(planOf("profileName: x"), "nodeSelector: {}, ", "", 1)), "spec.nodeSelector: Required value")
}
