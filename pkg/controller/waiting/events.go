package waiting

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

const (
	// maxName is the longest beginning of the name of an event.
	maxName = 200
	// afterFailure is when events are written again in a namespace where one could not be written.
	afterFailure = time.Minute
)

// written is an event that was written so often.
type written struct {
	name  string
	count int32
	at    time.Time
}

// writeEvents writes the events that are due. A namespace where that fails is left alone for a while.
func (e *Explainer) writeEvents(ctx context.Context, _ changeSet) error {
	now := e.Clock.Now()
	for namespace, at := range e.retryAt {
		if !now.Before(at) {
			delete(e.retryAt, namespace)
		}
	}
	var due []types.NamespacedName
	for key, p := range e.pods {
		if reason, _ := e.answer(key, p); e.isDue(p, reason) && e.retryAt[key.Namespace].IsZero() {
			due = append(due, key)
		}
	}
	for _, key := range inTurns(due) {
		if !e.retryAt[key.Namespace].IsZero() || !e.stillWaits(ctx, key) {
			continue
		}
		if err := e.writeEvent(ctx, key, e.pods[key]); err != nil {
			if ctx.Err() != nil {
				return err
			}
			klog.FromContext(ctx).Error(err, "Writing an event on a pod that waits failed; trying again", "pod", key, "after", afterFailure)
			e.retryAt[key.Namespace] = e.Clock.Now().Add(afterFailure)
		}
	}
	return nil
}

// answer returns why a pod waits, and the sentence. It is DevicesFree if room lasts for a pod that was told
// something else.
func (e *Explainer) answer(key types.NamespacedName, p *pod) (reason string, note string) {
	switch d := p.demand; {
	case d == nil:
		return p.reason, p.note
	case d.reason != "":
		return d.reason, fit.Note(key, d.Asks(), d.nodes)
	case p.told != "" && !d.roomSince.IsZero() && e.Clock.Since(d.roomSince) >= e.After:
		return names.EventDevicesFree, "Devices that it asks for are free on a node. If it goes on waiting, something else is the reason."
	}
	return "", ""
}

// isDue reports whether an event is to be written: the answer is another one, or was written long ago.
func (e *Explainer) isDue(p *pod, reason string) bool {
	return reason != "" && (reason != p.told || reason != names.EventDevicesFree && e.Clock.Since(p.event.at) >= why.Renewal)
}

// stillWaits looks into the cache of pods that wait.
func (e *Explainer) stillWaits(ctx context.Context, key types.NamespacedName) bool {
	var o corev1.Pod
	return e.Pods.Get(ctx, key, &o) == nil && waits(&o)
}

// writeEvent writes an event, or that it is still so. The name follows from the pod and the text, so a
// controller that has just started continues the event of the one before.
func (e *Explainer) writeEvent(ctx context.Context, key types.NamespacedName, p *pod) error {
	ctx, cancel, err := e.call(ctx)
	defer cancel()
	if err != nil {
		return err
	}
	reason, note := e.answer(key, p)
	event := e.newEvent(key, p.uid, reason, note)
	now := written{name: event.Name, count: 1, at: e.Clock.Now()}
	err = apierrors.NewNotFound(eventsv1.Resource("events"), event.Name)
	if p.event.name == event.Name {
		now.count = p.event.count + 1
		err = e.continueEvent(ctx, event, now)
	}
	if apierrors.IsNotFound(err) { // or it has expired
		now.count = 1
		err = e.Client.Create(ctx, event)
	}
	if apierrors.IsAlreadyExists(err) {
		// To change nothing is to read it, without the right to read others.
		if err = e.Client.Patch(ctx, event, client.RawPatch(types.MergePatchType, []byte("{}"))); err == nil {
			now.count = 2
			if event.Series != nil {
				now.count = event.Series.Count + 1
			}
			err = e.continueEvent(ctx, event, now)
		}
	}
	if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("write event %s/%s: %w", event.Namespace, event.Name, err)
	}
	p.told, p.event = reason, now
	e.metrics.events.WithLabelValues(reason).Inc()
	return nil
}

// continueEvent writes that an event is still so. Only its series can be changed.
func (e *Explainer) continueEvent(ctx context.Context, event *eventsv1.Event, now written) error {
	patch := fmt.Appendf(nil, `{"series":{"count":%d,"lastObservedTime":%q}}`, now.count, now.at.UTC().Format(metav1.RFC3339Micro))
	return e.Client.Patch(ctx, event, client.RawPatch(types.MergePatchType, patch))
}

func (e *Explainer) newEvent(key types.NamespacedName, uid types.UID, reason string, note string) *eventsv1.Event {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s/%s/%s", uid, reason, note)
	kind := corev1.EventTypeWarning
	if reason == names.EventDevicesFree {
		kind = corev1.EventTypeNormal
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: fmt.Sprintf("%s.%x", strings.TrimRight(key.Name[:min(len(key.Name), maxName)], ".-"), hash.Sum64())},
		EventTime:  metav1.NewMicroTime(e.Clock.Now()), ReportingController: names.ControllerName, ReportingInstance: names.ControllerName,
		Action: "Explain", Reason: reason, Type: kind, Note: text.Note(note),
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name, UID: uid},
	}
}
