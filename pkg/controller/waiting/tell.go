package waiting

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
)

const (
	// mostNote is the longest text of an event, mostName the longest beginning of its name.
	mostNote = 1024
	mostName = 200
)

// tellNews writes events about pods whose answer has changed.
func (r *Reconciler) tellNews(ctx context.Context) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	return r.tell(ctx, r.memory.news(nodes))
}

func (r *Reconciler) tell(ctx context.Context, all []news) error {
	var errs []error
	for _, n := range all {
		if err := r.write(ctx, n); err != nil {
			r.memory.untold(n)
			errs = append(errs, err)
			continue
		}
		r.metrics.events.WithLabelValues(string(n.answer)).Inc()
	}
	return errors.Join(errs...)
}

// write writes an event. Its name follows from the pod and the answer, so that a controller that has
// just started does not write the same one again.
func (r *Reconciler) write(ctx context.Context, n news) error {
	if err := r.limit(ctx); err != nil {
		return err
	}
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s/%s", n.uid, n.answer)
	now := metav1.NewMicroTime(r.Clock.Now())
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.pod.Namespace, Name: fmt.Sprintf("%s.%x", strings.TrimRight(n.pod.Name[:min(len(n.pod.Name), mostName)], ".-"), hash.Sum64())},
		EventTime:  now, ReportingController: v1alpha1.ControllerName, ReportingInstance: v1alpha1.ControllerName,
		Action: "Explain", Reason: string(n.answer), Type: corev1.EventTypeWarning, Note: text.Cut(n.note, mostNote),
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.pod.Namespace, Name: n.pod.Name, UID: n.uid},
	}
	err := r.Client.Create(ctx, event)
	switch {
	case apierrors.IsAlreadyExists(err) && n.again:
		// The answer is again what it was before another one.
		patch := fmt.Appendf(nil, `{"series":{"count":2,"lastObservedTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
		err = r.Client.Patch(ctx, event, client.RawPatch("application/merge-patch+json", patch))
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		err = nil
	}
	if err != nil {
		return fmt.Errorf("write an event about pod %s: %w", n.pod, err)
	}
	return nil
}

// metrics are what is counted.
type metrics struct {
	events *prometheus.CounterVec
	reads  prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, m *memory) *metrics {
	out := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: v1alpha1.MetricWaitingPodEvents,
			Help: "Events that say why a pod waits.",
		}, []string{"reason"}),
		reads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: v1alpha1.MetricWaitingPodCalls,
			Help: "Calls to the API server for these events.",
		}),
	}
	if registry != nil {
		registry.MustRegister(out.events, out.reads, &podCollector{m})
	}
	return out
}

var podsDesc = prometheus.NewDesc(v1alpha1.MetricWaitingPods,
	"Pods that wait because of their claims, by the reason of their event.", []string{"reason"}, nil)

// podCollector counts the pods when metrics are scraped.
type podCollector struct{ memory *memory }

// Describe implements prometheus.Collector.
func (c *podCollector) Describe(descs chan<- *prometheus.Desc) { descs <- podsDesc }

// Collect implements prometheus.Collector.
func (c *podCollector) Collect(out chan<- prometheus.Metric) {
	for answer, n := range c.memory.answers() {
		if answer != why.None {
			out <- prometheus.MustNewConstMetric(podsDesc, prometheus.GaugeValue, float64(n), string(answer))
		}
	}
}
