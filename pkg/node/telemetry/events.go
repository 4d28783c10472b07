package telemetry

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Events writes events about the node and its pods.
type Events struct {
	client      eventsclient.EventsV1Interface
	recorder    events.EventRecorder
	node        *corev1.ObjectReference
	broadcaster events.EventBroadcaster
}

// OpenEvents returns Events for a node.
func OpenEvents(ctx context.Context, client kubernetes.Interface, node *corev1.Node) (*Events, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start the event recorder of node %s: %w", node.Name, err)
	}
	return &Events{
		client:      client.EventsV1(),
		recorder:    broadcaster.NewRecorder(scheme.Scheme, names.DriverName),
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

// Note writes a normal event about the node.
func (e *Events) Note(ctx context.Context, reason, message string) {
	e.send(ctx, corev1.EventTypeNormal, reason, message)
}

// GPUHealthy reports that a GPU is healthy again.
func (e *Events) GPUHealthy(ctx context.Context, gpuID string) {
	e.Note(ctx, names.EventGPUHealthy, fmt.Sprintf("GPU %s is healthy again and can be allocated", gpuID))
}

// DriverFound reports that the driver of a vendor can be used.
func (e *Events) DriverFound(ctx context.Context, v gpu.Vendor) {
	e.Note(ctx, names.EventDriverFound, fmt.Sprintf("The driver of this node's %s GPUs can be used now, so Tranche publishes them", v.Title()))
}

func (e *Events) send(ctx context.Context, eventType, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason)
	e.recorder.Eventf(e.node, e.about(message), eventType, reason, action, "%s", truncate(message))
}

// WarnPod writes a warning about a pod.
func (e *Events) WarnPod(ctx context.Context, namespace string, pod ledger.Pod, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason, "pod", klog.KRef(namespace, pod.Name))
	if pod.Name == "" {
		return // of a PodGroup: its name is not known
	}
	e.warnAbout(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: pod.UID}, reason, message)
}

// WarnClaim writes a warning about a claim whose pods are not known.
func (e *Events) WarnClaim(ctx context.Context, claim ledger.ClaimRef, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason, "claim", klog.KRef(claim.Namespace, claim.Name))
	e.warnAbout(&corev1.ObjectReference{
		APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}, reason, message)
}

func (e *Events) warnAbout(what *corev1.ObjectReference, reason, message string) {
	e.recorder.Eventf(what, e.node, corev1.EventTypeWarning, reason, action, "%s", truncate(message))
}

// action is the action of all events.
const action = "ManageGPUs"

// about returns a related object that differs for each message. The recorder combines events
// with the same node, reason and related object, and keeps only the first message: of two
// foreign partitions, one would never be reported.
func (e *Events) about(message string) *corev1.ObjectReference {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(message))
	related := *e.node
	related.FieldPath = fmt.Sprintf("gpus{%x}", hash.Sum64())
	return &related
}

// LastWords writes a warning at once, before the plugin ends: events that the recorder has
// only queued are lost.
func (e *Events) LastWords(ctx context.Context, reason, message string) {
	e.sendNow(ctx, corev1.EventTypeWarning, reason, message)
}

// LastNote is LastWords for an event that is no warning.
func (e *Events) LastNote(ctx context.Context, reason, message string) {
	e.sendNow(ctx, corev1.EventTypeNormal, reason, message)
}

func (e *Events) sendNow(ctx context.Context, kind, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordsTimeout)
	defer cancel()
	now := metav1.NowMicro()
	_, err := e.client.Events(metav1.NamespaceDefault).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", e.node.Name, now.UnixNano()), Namespace: metav1.NamespaceDefault},
		EventTime:           now,
		ReportingController: names.DriverName,
		ReportingInstance:   names.DriverName + "-" + e.node.Name,
		Action:              action,
		Reason:              reason,
		Regarding:           *e.node,
		Note:                truncate(message),
		Type:                kind,
	}, metav1.CreateOptions{})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write an event", "event", reason)
	}
}

// lastWordsTimeout limits how long LastWords may take.
const lastWordsTimeout = 5 * time.Second

// truncate shortens a message to what the API server accepts as the note of an event.
func truncate(message string) string { return text.Cut(message, 1024) }
