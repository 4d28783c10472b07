package telemetry

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Events writes events about the node, which is where an admin looks for
// what is wrong with it.
type Events struct {
	client      eventsclient.EventsV1Interface
	recorder    events.EventRecorder
	node        *corev1.ObjectReference
	broadcaster events.EventBroadcaster
}

// OpenEvents starts to write events about a node.
func OpenEvents(ctx context.Context, client kubernetes.Interface, node *corev1.Node) (*Events, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start to write events: %w", err)
	}
	return &Events{
		client:      client.EventsV1(),
		recorder:    broadcaster.NewRecorder(scheme.Scheme, gpu.DriverName),
		node:        &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		broadcaster: broadcaster,
	}, nil
}

// Close stops sending.
func (e *Events) Close() { e.broadcaster.Shutdown() }

// Warn writes a warning about the node.
func (e *Events) Warn(ctx context.Context, reason, message string) {
	e.send(ctx, corev1.EventTypeWarning, reason, message)
}

// Note writes that something went well about the node.
func (e *Events) Note(ctx context.Context, reason, message string) {
	e.send(ctx, corev1.EventTypeNormal, reason, message)
}

func (e *Events) send(ctx context.Context, eventType, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason)
	e.recorder.Eventf(e.node, e.about(message), eventType, reason, action, "%s", truncate(message))
}

// WarnPod writes a warning about a pod.
func (e *Events) WarnPod(ctx context.Context, namespace string, pod ledger.Pod, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason, "pod", klog.KRef(namespace, pod.Name))
	regarding := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: pod.UID}
	e.recorder.Eventf(regarding, e.node, corev1.EventTypeWarning, reason, action, "%s", truncate(message))
}

// action is what the plugin was doing, for all its events.
const action = "ManageGPUs"

// about tells events of one reason apart. The recorder takes two of them with
// the same node, reason and related object for one that happens again, and
// keeps the first one's message only: of two foreign partitions, one would
// never be heard of.
func (e *Events) about(message string) *corev1.ObjectReference {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(message))
	related := *e.node
	related.FieldPath = fmt.Sprintf("gpus{%x}", hash.Sum64())
	return &related
}

// LastWords writes a warning at once, for a plugin that is about to end: what
// the recorder has only queued is lost with the process.
func (e *Events) LastWords(ctx context.Context, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordsTimeout)
	defer cancel()
	now := metav1.NowMicro()
	_, err := e.client.Events(metav1.NamespaceDefault).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", e.node.Name, now.UnixNano()), Namespace: metav1.NamespaceDefault},
		EventTime:           now,
		ReportingController: gpu.DriverName,
		ReportingInstance:   gpu.DriverName + "-" + e.node.Name,
		Action:              action,
		Reason:              reason,
		Regarding:           *e.node,
		Note:                truncate(message),
		Type:                corev1.EventTypeWarning,
	}, metav1.CreateOptions{})
	if err != nil {
		klog.FromContext(ctx).Error(err, "The event could not be written", "event", reason)
	}
}

// lastWordsTimeout is how long the end of the plugin may wait for its reason to
// be written.
const lastWordsTimeout = 5 * time.Second

// truncate keeps a message within what the API server takes as an event's note.
func truncate(message string) string { return text.Cut(message, 1024) }
