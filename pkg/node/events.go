package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// eventSink writes events about the node, which is where an admin looks for
// what is wrong with it.
type eventSink struct {
	recorder events.EventRecorder
	node     *corev1.ObjectReference
	// close stops sending.
	close func()
}

// openEvents starts to write events about the node.
func (p *plugin) openEvents(ctx context.Context) error {
	node, err := getNode(ctx, p.client, p.NodeName)
	if err != nil {
		return fmt.Errorf("read node %s: %w", p.NodeName, err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: p.client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start to write events: %w", err)
	}
	p.events = &eventSink{
		recorder: broadcaster.NewRecorder(scheme.Scheme, gpu.DriverName),
		node:     &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		close:    broadcaster.Shutdown,
	}
	return nil
}

func (e *eventSink) warn(ctx context.Context, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason)
	e.recorder.Eventf(e.node, nil, corev1.EventTypeWarning, reason, "ManageGPUs", "%s", truncate(message))
}

func (e *eventSink) note(ctx context.Context, reason, message string) {
	klog.FromContext(ctx).Info(message, "event", reason)
	e.recorder.Eventf(e.node, nil, corev1.EventTypeNormal, reason, "ManageGPUs", "%s", truncate(message))
}

// truncate keeps a message within what the API server takes as an event's note.
func truncate(message string) string {
	const limit = 1024
	if len(message) <= limit {
		return message
	}
	return message[:limit-3] + "..."
}
