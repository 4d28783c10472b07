package defragment

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

// maxMessage is the maximum length of an event and of a message, in bytes.
const maxMessage = 1024

type metrics struct {
	ended, evictions *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricDefragmentations,
			Help: "Finished defragmentations: Succeeded or Aborted.",
		}, []string{"result"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricDefragmentationEvictions,
			Help: "Evictions that made room for waiting pods: Evicted, Refused.",
		}, []string{"result"}),
	}
	if registry != nil {
		registry.MustRegister(m.ended, m.evictions)
	}
	return m
}

func (d *Defragmenter) reportStart(ctx context.Context, node *v1beta1.GPUNode) {
	a := node.Status.Defragmentation
	note := fmt.Sprintf("Making room for pod %s/%s by moving pods: %s", a.Pod.Namespace, a.Pod.Name, podNames(a.Moves))
	klog.FromContext(ctx).Info("Defragmentation started", "gpunode", node.Name, "id", a.ID, "pod", klog.KRef(a.Pod.Namespace, a.Pod.Name), "devices", a.Devices, "moves", podNames(a.Moves))
	d.event(node, corev1.EventTypeNormal, names.EventDefragmentationStarted, note)
	// The event on the pod does not name the pods of other tenants.
	d.podEvent(a.Pod, names.EventMakingRoom, fmt.Sprintf("Making room on node %s by moving %d of its pods", node.Name, len(a.Moves)))
}

func (d *Defragmenter) reportEnd(ctx context.Context, node *v1beta1.GPUNode) {
	a := node.Status.Defragmentation
	kind, reason, result := corev1.EventTypeNormal, names.EventDefragmentationSucceeded, names.OutcomeSucceeded
	if a.State == v1beta1.DefragmentationAborted {
		kind, reason, result = corev1.EventTypeWarning, names.EventDefragmentationAborted, names.OutcomeAborted
	}
	klog.FromContext(ctx).Info("Defragmentation finished", "gpunode", node.Name, "id", a.ID, "state", a.State, "message", a.Message)
	d.metrics.ended.WithLabelValues(result).Inc()
	d.event(node, kind, reason, fmt.Sprintf("Pod %s/%s: %s", a.Pod.Namespace, a.Pod.Name, a.Message))
}

func (d *Defragmenter) event(node *v1beta1.GPUNode, kind, reason, note string) {
	d.Events.Eventf(node.EventObject(), nil, kind, reason, "Defragment", "%s", text.Cut(note, maxMessage))
}

func (d *Defragmenter) podEvent(pod v1beta1.PodReference, reason, note string) {
	d.Events.Eventf(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}, nil, corev1.EventTypeNormal, reason, "Defragment", "%s", text.Cut(note, maxMessage))
}

func podNames(moves []v1beta1.DefragmentationMove) string {
	all := lists.Map(moves, func(m v1beta1.DefragmentationMove) string { return m.Namespace + "/" + m.Name })
	return text.List(all, len(all))
}
