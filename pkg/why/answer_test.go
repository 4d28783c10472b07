package why_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/pending"
)

// A pod that asks only for devices of another driver is not explained. If they may be ours, only what
// follows from ours is an answer.
func TestAnotherDriver(t *testing.T) {
	with := func(selector string) *pending.World {
		w := newWorld(t).Node("node-a", "H100-80GB", 1)
		w.In.Classes = append(w.In.Classes, resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}},
		}})
		w.In.Nodes = append(w.In.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu-node"}})
		w.In.Slices = append(w.In.Slices, resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "nic-slice"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: "nic.example.com", NodeName: new("cpu-node"), Pool: resourceapi.ResourcePool{Name: "cpu-node", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "nic-0"}},
		}})
		return w
	}
	w := with(`device.driver == "nic.example.com"`)
	w.Pod(pending.Request("nic", "nic"))
	e := w.Explain()
	assert.Equal(t, why.OtherDriver, e.State)
	assert.Equal(t, "team-a/pod has no node yet. It asks for devices of another driver, which is not explained here.", e.Summary)
	assert.Empty(t, e.Answer)
	assert.Empty(t, e.Remedies)

	w = with(`device.driver != "other.example.com"`)
	w.Pod(allocator.Request("nic", "nic", 30))
	e = w.Explain()
	assert.Equal(t, why.NoRoom, e.State)
	assert.Contains(t, e.Summary, "Whether devices of another driver can serve it is not explained here.")
	assert.Empty(t, e.Answer)
	w = with(`device.driver != "other.example.com"`).Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
	w.Pod(pending.Request("nic", "nic"))
	assert.Equal(t, names.EventDevicesHeld, w.Explain().Answer)
}

// An old event, or one that was followed by that devices are free, is no answer.
func TestOldEventsAreNoAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		age, free time.Duration
		want      why.State
		reason    string
	}{
		"young, a claim":  {age: 59 * time.Minute, want: why.NoRoom, reason: names.EventClaimNotCreated},
		"young, no class": {age: 59 * time.Minute, want: why.NoRoom, reason: names.EventRequestInvalid},
		"young":           {age: 59 * time.Minute, want: why.NoRoom},
		"old":             {age: 61 * time.Minute, want: why.Unknown},
		"over":            {age: 20 * time.Minute, free: 10 * time.Minute, want: why.Unknown},
		"again":           {age: 20 * time.Minute, free: 30 * time.Minute, want: why.NoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.Pod(pending.Request("gpu", pending.Small))
			w.Hide(why.ResourceClaims)
			say := func(reason string, age time.Duration) {
				e := pending.Warning("Pod", "pod", reason, names.ControllerName, "Waits.")
				e.InvolvedObject.UID, e.LastTimestamp = w.In.Pod.UID, metav1.NewTime(pending.Now.Add(-age))
				w.In.Events = append(w.In.Events, e)
			}
			say(cmp.Or(test.reason, names.EventDevicesHeld), test.age)
			for _, change := range []func(*corev1.Event){ // these are about something else
				func(e *corev1.Event) { e.InvolvedObject.Kind = "ResourceClaim" }, func(e *corev1.Event) { e.InvolvedObject.Name = "other" },
				func(e *corev1.Event) { e.InvolvedObject.UID = "before" }, func(e *corev1.Event) { e.ReportingController = "kubelet" }, func(e *corev1.Event) { e.Reason = "Other" },
			} {
				say(names.EventDevicesFree, 0)
				change(&w.In.Events[len(w.In.Events)-1])
			}
			if test.free > 0 {
				say(names.EventDevicesFree, test.free)
			}
			assert.Equal(t, test.want, w.Explain().State)
		})
	}
}
