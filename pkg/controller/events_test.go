package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/kubefake"
)

// Each switch has its own events; the same said again is counted.
func TestEventsAreToldApart(t *testing.T) {
	api := kubefake.New()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: api.EventsV1()})
	require.NoError(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
	defer broadcaster.Shutdown()
	scheme, err := NewScheme()
	require.NoError(t, err)
	r := &Reconciler{Events: broadcaster.NewRecorder(scheme, "tranche-controller").(recorder.EventRecorder)}
	node := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "u"}}
	for _, note := range []string{"from a to b", "from b to a", "from a to b"} {
		r.event(node, corev1.EventTypeNormal, "SwitchStarted", "Switch", note)
	}
	var found []eventsv1.Event
	require.Eventually(t, func() bool {
		list, err := api.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		found = list.Items
		return len(found) == 2
	}, time.Minute, time.Millisecond)
	var notes []string
	for i := range found {
		notes = append(notes, found[i].Note)
		assert.Equal(t, "node-a", found[i].Regarding.Name)
		assert.Empty(t, found[i].Regarding.FieldPath)
	}
	assert.ElementsMatch(t, []string{"from a to b", "from b to a"}, notes)
}

// Events and metrics of switches that end in different ways.
func TestWhatSwitchesTell(t *testing.T) {
	var got strings.Builder
	for _, test := range []struct {
		name   string
		begin  v1beta1.State
		change []func(*v1beta1.PartitionProfile)
		wants  string
		end    func(*v1beta1.GPUNode) bool
	}{
		{name: "succeeds", begin: v1beta1.Applying, end: inProfile("cpx")},
		{name: "is rolled back", begin: v1beta1.RollingBack, end: is(v1beta1.Failed)},
		{name: "is blocked", begin: v1beta1.Draining, end: is(v1beta1.Failed)},
		{name: "uses force", begin: v1beta1.Draining, change: []func(*v1beta1.PartitionProfile){withForce}, end: inProfile("cpx")},
		{name: "is taken back", begin: v1beta1.Draining, wants: "old", end: inProfile("old")},
	} {
		w, _ := switching(t, test.begin, test.change...)
		if test.wants != "" {
			w.wants("node-a", test.wants)
		}
		w.run("node-a", time.Hour, test.end)
		fmt.Fprintf(&got, "A switch that %s\n%s\n%s\n", test.name, strings.Join(w.events.texts, "\n"), w.measured())
	}
	golden.Equal(t, "testdata/told.txt", got.String())
}

// measured is what the controller's metrics of switches count.
func (w *world) measured() string {
	w.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.r.metrics.states, w.r.metrics.durations, w.r.metrics.switches, w.r.metrics.evictions)
	families, err := registry.Gather()
	require.NoError(w.t, err)
	var got strings.Builder
	for _, family := range families {
		for _, m := range family.Metric {
			fmt.Fprint(&got, *family.Name)
			for _, label := range m.Label {
				fmt.Fprintf(&got, " %s=%s", *label.Name, *label.Value)
			}
			if m.Histogram != nil {
				fmt.Fprintf(&got, ": %d in %g s\n", *m.Histogram.SampleCount, *m.Histogram.SampleSum)
			} else {
				fmt.Fprintf(&got, ": %g\n", *m.Counter.Value)
			}
		}
	}
	return got.String()
}
