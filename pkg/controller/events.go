package controller

import (
	"context"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/text"
)

// reportChange reports a change of state: in the log, in metrics, and by an event where people should
// know.
func (r *Reconciler) reportChange(ctx context.Context, gpuNode *v1beta1.GPUNode, before *v1beta1.GPUNodeStatus, step *state.Step) {
	log := klog.FromContext(ctx)
	now := &gpuNode.Status
	if before.Switch != nil && before.State != v1beta1.Failed && before.State != v1beta1.Idle {
		r.metrics.states.WithLabelValues(string(before.State)).Observe(r.Clock.Now().Sub(before.Switch.StateChangeTime.Time).Seconds())
	}
	if step.Record != nil {
		r.metrics.switched(step.Record)
	}
	log.Info("Switch state changed", "from", before.State, "to", now.State, "switch", switchID(before), "profile", profileIn(before, now))
	switch {
	case now.State == v1beta1.Tainted && before.State != v1beta1.Applying:
		sw := now.Switch
		r.event(gpuNode, corev1.EventTypeNormal, names.EventSwitchStarted, "Switch",
			fmt.Sprintf("Switching %s from %s to %s", text.List(sw.GPUs, mostNamed), text.Profile(sw.From.ProfileName), text.Profile(sw.To.ProfileName)))
	case now.State == v1beta1.RollingBack:
		r.event(gpuNode, corev1.EventTypeWarning, now.Switch.Reason, "Rollback",
			fmt.Sprintf("Rolling back to %s: %s", text.Profile(now.Switch.From.ProfileName), now.Switch.Message))
	case step.Record != nil && step.Record.Result == v1beta1.ResultSucceeded:
		if before.Switch != nil && len(before.Switch.GPUs) > 0 {
			r.event(gpuNode, corev1.EventTypeNormal, names.EventSwitchSucceeded, "Switch",
				fmt.Sprintf("Switched to %s in %s", text.Profile(step.Record.ToProfileName), step.Record.Duration.Duration))
		}
	case now.State == v1beta1.Failed:
		r.event(gpuNode, corev1.EventTypeWarning, now.Switch.Reason, "Switch", state.FailedText(now))
	case step.Record != nil:
		r.event(gpuNode, corev1.EventTypeNormal, step.Record.Reason, "Switch",
			fmt.Sprintf("Gave up the switch to %s: %s", text.Profile(step.Record.ToProfileName), step.Record.Message))
	}
}

func profileIn(before, now *v1beta1.GPUNodeStatus) string {
	for _, s := range []*v1beta1.GPUNodeStatus{now, before} {
		if s.Switch != nil {
			return s.Switch.To.ProfileName
		}
	}
	return ""
}

func (r *Reconciler) event(gpuNode *v1beta1.GPUNode, kind, reason, action, note string) {
	note = text.Note(note)
	r.Events.Eventf(gpuNode.EventObject(), about(gpuNode, note), kind, state.ReasonWord(reason), action, "%s", note)
}

// about makes events with different texts distinct. The recorder otherwise counts events with
// the same objects and reason as one, with the text of the first: a switch back would be
// reported as the switch before.
func about(gpuNode *v1beta1.GPUNode, note string) *corev1.ObjectReference {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(note))
	return &corev1.ObjectReference{
		APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.NodeKind, Name: gpuNode.Name, UID: gpuNode.UID,
		FieldPath: fmt.Sprintf("status.switch{%x}", hash.Sum64()),
	}
}

// reportEviction writes an event that explains why a pod was evicted.
func (r *Reconciler) reportEviction(p *drain.Pod, profile string, force bool) {
	note := fmt.Sprintf("Asked to leave, because the GPUs that it uses are switched to %s", text.Profile(profile))
	if force {
		note = fmt.Sprintf("Deleted after the deadline, because the GPUs that it uses are switched to %s", text.Profile(profile))
	}
	r.Events.Eventf(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}, nil, corev1.EventTypeNormal, names.EventEvictedForSwitch, "Evict", "%s", note)
}
