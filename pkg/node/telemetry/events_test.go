package telemetry

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

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

func TestLastWords(t *testing.T) {
	api, e := newEvents(t)
	e.LastWords(t.Context(), "HardwareUnusable", strings.Repeat("é", 2000))
	list, err := api.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "written when the call returns")
	event := list.Items[0]
	assert.Equal(t, "Warning", event.Type)
	assert.EqualValues(t, "node-uid", event.Regarding.UID)
	assert.LessOrEqual(t, len(event.Note), 1024)
	assert.True(t, utf8.ValidString(event.Note))
	assert.NotEmpty(t, event.ReportingController)
	assert.NotEmpty(t, event.ReportingInstance)
	assert.NotEmpty(t, event.Action)
	assert.False(t, event.EventTime.IsZero())
}

func TestTruncate(t *testing.T) {
	assert.Equal(t, "short", truncate("short"))
	assert.Len(t, truncate(strings.Repeat("x", 5000)), 1024)
}
