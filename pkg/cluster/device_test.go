package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// A device is available where its slice says, or, if that says so, where it says itself.
func TestWhereADeviceIs(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"zone": "x"}}}
	zone := func(value string) *corev1.NodeSelector {
		return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}
	}
	for name, tt := range map[string]struct {
		slice  resourceapi.ResourceSliceSpec
		device resourceapi.Device
		want   bool
	}{
		"this node":              {resourceapi.ResourceSliceSpec{NodeName: new("node-a")}, resourceapi.Device{}, true},
		"another node":           {resourceapi.ResourceSliceSpec{NodeName: new("node-b")}, resourceapi.Device{NodeName: new("node-a")}, false},
		"all nodes":              {resourceapi.ResourceSliceSpec{AllNodes: new(true)}, resourceapi.Device{}, true},
		"the zone":               {resourceapi.ResourceSliceSpec{NodeSelector: zone("x")}, resourceapi.Device{}, true},
		"another zone":           {resourceapi.ResourceSliceSpec{NodeSelector: zone("y")}, resourceapi.Device{}, false},
		"a zone that is invalid": {resourceapi.ResourceSliceSpec{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "?"}}}}}}, resourceapi.Device{}, false},
		"per device":             {resourceapi.ResourceSliceSpec{PerDeviceNodeSelection: new(true)}, resourceapi.Device{NodeName: new("node-a")}, true},
		"per device, another":    {resourceapi.ResourceSliceSpec{PerDeviceNodeSelection: new(true)}, resourceapi.Device{NodeSelector: zone("y")}, false},
	} {
		d := &Device{Device: &tt.device, Slice: &resourceapi.ResourceSlice{Spec: tt.slice}}
		assert.Equal(t, tt.want, d.On(node), name)
	}
}

// Whether our devices can serve a request, also with selectors of its own.
func TestServing(t *testing.T) {
	selector := func(expression string) []resourceapi.DeviceSelector {
		return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	class := func(expression string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: selector(expression)}}
	}
	c := &Cluster{Selectors: allocation.NewCache(10), DeviceClasses: allocation.Classes{
		"ours": class(`device.driver == "gpu.tranche.dev"`), "any": {Spec: resourceapi.DeviceClassSpec{Selectors: make([]resourceapi.DeviceSelector, 1)}}, "nic": class(`device.driver == "nic.example.com"`),
	}}
	const isOurs = `device.driver == "gpu.tranche.dev"`
	for _, tt := range []struct {
		class, selector string
		want            Serving
	}{
		{"gpu-mig-1g-10gb.tranche.dev", "", Ours}, {"ours", "", Ours}, {"any", "", OursPerhaps}, {"nic", "", Others}, {"unknown", isOurs, OursPerhaps}, {"any", isOurs, Ours}, {"nic", isOurs, Others},
	} {
		var own []resourceapi.DeviceSelector
		if tt.selector != "" {
			own = selector(tt.selector)
		}
		assert.Equal(t, tt.want, c.Serving(t.Context(), tt.class, own), tt)
	}
}

// When a failed switch is retried, with and without the current time.
func TestAgain(t *testing.T) {
	const blocked = "when what blocks it is gone, which is checked at least every 30 minutes, or when the profile or its policy changes"
	at := func(d time.Duration) v1beta1.Switch {
		return v1beta1.Switch{Attempt: 1, RetryTime: new(metav1.NewMicroTime(gpunodes.Now.Add(d)))}
	}
	for want, s := range map[string]v1beta1.Switch{
		blocked + "|It is retried " + blocked + ".":                                                    {Blockers: make([]v1beta1.Blocker, 1), RetryTime: at(time.Minute).RetryTime},
		"at 13:58:00 UTC|Attempt 2 starts in 60s.":                                                     at(time.Minute),
		"at 13:56:00 UTC|Attempt 2 starts now.":                                                        at(-time.Minute),
		"when the profile or its policy changes|It is retried when the profile or its policy changes.": {RebootRequested: true},
		"when the profile, its policy, the GPUs or the plugin's settings change|It is retried when the profile, its policy, the GPUs or the plugin's settings change.": {},
	} {
		n := ProgressOf(&v1beta1.GPUNode{Status: v1beta1.GPUNodeStatus{Switch: &s}})
		assert.Equal(t, want, n.Again()+"|"+n.again(gpunodes.Now))
	}
}

// The estimate is that of the controller.
func TestEstimateOfARollout(t *testing.T) {
	p := gpunodes.NewPlan("canary", "balanced", 2).Says(names.ConditionProgressing, true, names.ReasonRollingOut, "")
	done := metav1.NewTime(gpunodes.Now)
	p.Status.EstimatedCompletionTime = &done
	p.Status.History, p.Status.TargetRevision = []v1beta1.PlanRevision{{Revision: 2, ProfileName: "balanced"}, {Revision: 1, ProfileName: "before"}}, new(int64(1))
	r, known := RolloutOf(&p.PartitionPlan)
	assert.True(t, known)
	assert.Equal(t, &done.Time, r.Done)
	assert.Equal(t, "before", r.Profile, "that of the revision which nodes get")
}
