package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/api/v1beta1"
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
