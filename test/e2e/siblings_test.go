package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// The replacement of an evicted pod stays off GPUs that need no change. They used to be
// left out of the plan and untainted, although they offer the pod's device until the
// profile is applied. The replacement was scheduled to one of them and switched its mode,
// applying failed, and the next attempt evicted it again, once per GPU of the node.
func TestADisplacedPodStaysOffSiblings(t *testing.T) {
	for name, test := range map[string]struct {
		node, rule, class string
	}{
		"MIG disabled": {nodeA, `{gpus: {vendor: nvidia}, mig: {mode: Disabled}}`, class1g10gb},
		"SPX":          {nodeC, `{gpus: {vendor: amd}, xcp: {computePartition: SPX}}`, classCPX},
	} {
		t.Run(name, func(t *testing.T) {
			if test.node == nodeC {
				onlyAtNight(t)
			}
			s := start(t)
			s.setProfile("undivided", test.rule)
			s.template("partition", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request(test.class, "")}})
			s.unlabelAtEnd(test.node)
			s.deploy("displaced", test.node, 1, fromTemplate("partition"))
			s.waitReady("displaced", 1)

			s.setProfileLabel(test.node, "undivided")
			n := s.waitFollows(test.node, "undivided")
			var results []v1beta1.SwitchResult
			for _, r := range n.Status.History {
				if r.ToProfileName == "undivided" && r.FromProfileName == "" {
					results = append(results, r.Result)
				}
			}
			assert.Equal(t, []v1beta1.SwitchResult{v1beta1.ResultSucceeded}, results, "the first attempt succeeds")
			assert.EqualValues(t, 1, n.Status.History[0].EvictedPodCount)
			assert.Zero(t, s.ready("displaced"))
			assert.Zero(t, s.machine(nodeA).instances())
			assert.Empty(t, s.records(test.node))
		})
	}
}
