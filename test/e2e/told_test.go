package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/names"
)

// fanRule is the taint of an administrator on all devices of node-a.
const fanRule = `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: e2e-told}
spec: {deviceSelector: {driver: gpu.tranche.dev, pool: %q}, taint: {key: example.com/fan, effect: NoSchedule}}
`

// toldClass is the class that the pod waits for.
const toldClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-told.tranche.dev}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].?profile.orValue("") == "1g.10gb"'}}]}
`

// A pod is told why it waits when that is known, and again when the reason changes: because of
// classes, taints and slices. Nobody asks in between.
func TestPodsAreToldWhyTheyWait(t *testing.T) {
	s := start(t)
	s.requireTaintRules()
	t.Cleanup(func() {
		s.kubectl("delete", "--ignore-not-found", "devicetaintrule/e2e-told", "deviceclass/e2e-told.tranche.dev")
	})
	s.setProfile("whole", "{mig: {mode: Disabled}}")
	// Nothing orders what the scheduler sees of two kinds of objects, so the taint comes long before the class.
	s.apply(fmt.Sprintf(fanRule, names.PoolName(nodeA)))
	s.gpuPod("waits", "e2e-told.tranche.dev")
	s.waitPodEvent("waits", names.EventRequestInvalid)
	s.apply(toldClass)
	s.waitPodEvent("waits", names.EventDevicesTainted)
	s.follow(nodeA, "whole")
	s.waitPodEvent("waits", names.EventNoSuchDevice)
	told := map[string]int{}
	for _, e := range s.podEvents("waits") {
		if e.ReportingController == names.ControllerName {
			told[e.Reason]++
		}
	}
	for reason, times := range told {
		assert.Equal(t, 1, times, reason)
	}
	s.setProfileLabel(nodeA, "")
	s.kubectl("delete", "devicetaintrule/e2e-told")
	s.waitRunning("waits")
}
