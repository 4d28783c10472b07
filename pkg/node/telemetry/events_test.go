package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// newEvents are those of a node, and the API server that has them.
func newEvents(t *testing.T) (*fake.Clientset, *Events) {
	t.Helper()
	api := nodetest.NewAPI()
	node, err := api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	e, err := OpenEvents(nodetest.Quiet(t.Context()), api, node)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return api, e
}

// Two foreign partitions are two events, not one that happened twice.
func TestEventsOfOneReason(t *testing.T) {
	api, e := newEvents(t)
	e.Warn(t.Context(), "ForeignPartition", "GPU 1 holds partition x")
	e.Warn(t.Context(), "ForeignPartition", "GPU 2 holds partition y")
	nodetest.AwaitEvent(t, api, "ForeignPartition", "partition x")
	nodetest.AwaitEvent(t, api, "ForeignPartition", "partition y")
}

func TestEvents(t *testing.T) {
	api, e := newEvents(t)
	e.GPUHealthy(t.Context(), "gpu-1")
	e.DriverFound(t.Context(), gpu.AMD)
	e.LastNote(t.Context(), "DriverReleased", "bye")
	e.WarnPod(t.Context(), "team", ledger.Pod{Name: "web", UID: "1"}, "ReleaseFailed", "no")
	e.WarnPod(t.Context(), "team", ledger.Pod{UID: "2"}, "ReleaseFailed", "of a PodGroup")
	e.WarnClaim(t.Context(), ledger.ClaimRef{Namespace: "team", Name: "gpu", UID: "3"}, "ShareLimitReduced", "less")
	want := []string{
		"Normal DriverFound Node node-a: The driver of this node's AMD GPUs can be used now, so Tranche publishes them",
		"Normal DriverReleased Node node-a: bye", "Normal GPUHealthy Node node-a: GPU gpu-1 is healthy again and can be allocated",
		"Warning ReleaseFailed Pod web: no", "Warning ShareLimitReduced ResourceClaim gpu: less",
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		list, err := api.EventsV1().Events("").List(context.Background(), metav1.ListOptions{})
		require.NoError(t, err)
		var told []string
		for _, e := range list.Items {
			told = append(told, fmt.Sprintf("%s %s %s %s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
		slices.Sort(told)
		assert.Equal(t, want, told)
	}, nodetest.Patience, nodetest.Tick)
}

func TestLastWords(t *testing.T) {
	api, e := newEvents(t)
	e.LastWords(t.Context(), "HardwareUnusable", strings.Repeat("x", 2000))
	list, err := api.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "written when the call returns")
	event := list.Items[0]
	assert.True(t, strings.HasPrefix(event.Name, "node-a."), event.Name)
	assert.WithinDuration(t, time.Now(), event.EventTime.Time, time.Minute)
	event.Name, event.EventTime = "", metav1.MicroTime{}
	assert.Equal(t, eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, ReportingController: names.DriverName, ReportingInstance: names.DriverName + "-node-a",
		Action: "ManageGPUs", Reason: "HardwareUnusable", Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "node-uid"}, Type: "Warning",
		Note: strings.Repeat("x", 1021) + "...",
	}, event)
}
