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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
)

const (
	// mostNote is the longest text of an event, mostName the longest beginning of its name.
	mostNote = 1024
	mostName = 200
	// betweenSweeps is how often it is looked for what becomes due.
	betweenSweeps = time.Minute
	writeTimeout  = 30 * time.Second
)

// Tell writes events until the context ends.
func (r *Reconciler) Tell(ctx context.Context) error {
	sweeps := time.NewTicker(betweenSweeps)
	defer sweeps.Stop()
	for ctx.Err() == nil {
		told, wait := r.tellNext(ctx)
		if told {
			wait = time.Nanosecond // only a sweep that is due comes before the next
		} else if wait == 0 {
			wait = betweenSweeps
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-sweeps.C:
			r.sweep()
		case <-r.memory.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// sweep looks for what has become due.
func (r *Reconciler) sweep() {
	for _, key := range r.memory.sweep(r.After, r.Clock.Now()) {
		r.LookSoon(reconcile.Request{NamespacedName: key})
	}
}

// tellNext tells a pod what there is to tell. If no pod is due, wait is when the next may be.
func (r *Reconciler) tellNext(ctx context.Context) (told bool, wait time.Duration) {
	key, ok, wait := r.memory.next(r.Clock.Now())
	if !ok {
		return false, wait
	}
	if _, due := r.memory.news(key, r.After, r.Clock.Now()); !due || !r.stillWaits(ctx, key) {
		return true, 0
	}
	if err := r.limit(ctx); err != nil {
		return true, 0 // this program ends
	}
	n, due := r.memory.news(key, r.After, r.Clock.Now())
	if !due {
		return true, 0
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	event, err := r.write(ctx, n)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell a pod why it waits; trying again", "pod", key)
		r.memory.failed(n, r.Clock.Now())
		return true, 0
	}
	r.memory.wrote(n, event)
	r.metrics.events.WithLabelValues(string(n.answer)).Inc()
	return true, 0
}

// stillWaits looks into the cache of pods that wait.
func (r *Reconciler) stillWaits(ctx context.Context, key types.NamespacedName) bool {
	var pod corev1.Pod
	if err := r.Pods.Get(ctx, key, &pod); err != nil || !waits(&pod) {
		r.memory.forget(key)
		return false
	}
	return true
}

// write writes an event, or that it is still so. The name follows from the pod and the text, so a controller
// that has just started continues the event of the one before.
func (r *Reconciler) write(ctx context.Context, n news) (written, error) {
	event := r.event(n)
	now := written{name: event.Name, count: 1, at: r.Clock.Now()}
	if n.before.name == event.Name {
		now.count = n.before.count + 1
		err := r.continueEvent(ctx, event, now)
		if err == nil || !apierrors.IsNotFound(err) {
			return now, err
		}
		now.count = 1 // it has expired
	}
	err := r.Client.Create(ctx, event)
	switch {
	case apierrors.IsAlreadyExists(err):
		// To change nothing is to read it, without the right to read others.
		if err := r.Client.Patch(ctx, event, client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil {
			return now, fmt.Errorf("read an event about pod %s: %w", n.pod, err)
		}
		now.count = 2
		if event.Series != nil {
			now.count = event.Series.Count + 1
		}
		err = r.continueEvent(ctx, event, now)
		return now, err
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return now, nil
	case err != nil:
		return now, fmt.Errorf("write an event about pod %s: %w", n.pod, err)
	}
	return now, nil
}

// continueEvent says that an event is still so. Only its series can be changed.
func (r *Reconciler) continueEvent(ctx context.Context, event *eventsv1.Event, now written) error {
	patch := fmt.Appendf(nil, `{"series":{"count":%d,"lastObservedTime":%q}}`, now.count, now.at.UTC().Format(metav1.RFC3339Micro))
	if err := r.Client.Patch(ctx, event, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write again the event %s/%s: %w", event.Namespace, event.Name, err)
	}
	return nil
}

func (r *Reconciler) event(n news) *eventsv1.Event {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s/%s/%s", n.uid, n.answer, n.note)
	kind := corev1.EventTypeWarning
	if n.answer == why.DevicesFree {
		kind = corev1.EventTypeNormal
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.pod.Namespace, Name: fmt.Sprintf("%s.%x", strings.TrimRight(n.pod.Name[:min(len(n.pod.Name), mostName)], ".-"), hash.Sum64())},
		EventTime:  metav1.NewMicroTime(r.Clock.Now()), ReportingController: names.ControllerName, ReportingInstance: names.ControllerName,
		Action: "Explain", Reason: string(n.answer), Type: kind, Note: text.Cut(n.note, mostNote),
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.pod.Namespace, Name: n.pod.Name, UID: n.uid},
	}
}
