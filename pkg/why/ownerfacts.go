package why

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// facts are the facts about an owner that its explanation depends on.
type facts struct {
	kind string
	meta metav1.Object
	// wanted is the number of pods that it wants at once.
	wanted int
	// suspended is true if it creates no pods at present.
	suspended bool
	// finished is how it ended, or empty if it has not ended.
	finished string
	// sequential is true if it creates a pod only when the previous one is ready.
	sequential bool
	// template is the template of its pods, if they all have the same.
	template *corev1.PodSpec
	// creators are the UIDs of the objects that create its pods. about are the objects whose events
	// are quoted, as KIND/NAME.
	creators []types.UID
	about    []string
}

func (in *OwnerInput) facts() facts {
	switch {
	case in.Job != nil:
		return ofJob(in.Job)
	case in.Deployment != nil:
		return in.ofDeployment(in.Deployment)
	case in.ReplicaSet != nil:
		f := facts{kind: KindReplicaSet, meta: in.ReplicaSet, wanted: int(ptr.Deref(in.ReplicaSet.Spec.Replicas, 1)), template: &in.ReplicaSet.Spec.Template.Spec}
		return f.creator(KindReplicaSet, in.ReplicaSet)
	case in.StatefulSet != nil:
		s := in.StatefulSet
		f := facts{kind: KindStatefulSet, meta: s, wanted: int(ptr.Deref(s.Spec.Replicas, 1)), template: &s.Spec.Template.Spec,
			sequential: s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement}
		return f.creator(KindStatefulSet, s)
	default:
		return in.ofJobSet(in.JobSet)
	}
}

func (f facts) creator(kind string, o metav1.Object) facts {
	f.creators = append(f.creators, o.GetUID())
	f.about = append(f.about, kind+"/"+o.GetName())
	return f
}

func ofJob(j *batchv1.Job) facts {
	f := facts{kind: KindJob, meta: j, wanted: int(ptr.Deref(j.Spec.Parallelism, 1)), suspended: ptr.Deref(j.Spec.Suspend, false), template: &j.Spec.Template.Spec}
	if c := j.Spec.Completions; c != nil {
		f.wanted = min(f.wanted, int(*c-j.Status.Succeeded))
	}
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobSuccessCriteriaMet:
			f.finished = "it is complete"
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			f.finished = fmt.Sprintf("it has failed (%s): %s", c.Reason, c.Message)
		}
	}
	return f.creator(KindJob, j)
}

// ofDeployment returns the facts about a Deployment and its ReplicaSets.
func (in *OwnerInput) ofDeployment(d *appsv1.Deployment) facts {
	f := facts{kind: KindDeployment, meta: d, wanted: int(ptr.Deref(d.Spec.Replicas, 1)), template: &d.Spec.Template.Spec, about: []string{KindDeployment + "/" + d.Name}}
	for i := range in.ReplicaSets {
		if s := &in.ReplicaSets[i]; metav1.IsControlledBy(s, d) {
			f = f.creator(KindReplicaSet, s)
		}
	}
	return f
}

// ofJobSet returns the facts about a JobSet, which are the sum of its jobs.
func (in *OwnerInput) ofJobSet(s *JobSet) facts {
	f := facts{kind: KindJobSet, meta: s, suspended: ptr.Deref(s.Spec.Suspend, false), about: []string{KindJobSet + "/" + s.Name}}
	if s.Status.TerminalState != "" {
		f.finished = "its state is " + s.Status.TerminalState
	}
	jobs := 0
	for i := range in.Jobs {
		j := &in.Jobs[i]
		if !slices.ContainsFunc(j.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.UID }) {
			continue
		}
		one := ofJob(j)
		jobs++
		if one.finished == "" && !one.suspended {
			f.wanted += one.wanted
		}
		f = f.creator(KindJob, j)
	}
	if jobs == 0 {
		f.wanted = 1 // its jobs do not exist yet
	}
	return f
}

// pods returns the owner's pods, the oldest first.
func (in *OwnerInput) pods(f facts) []*corev1.Pod {
	var out []*corev1.Pod
	byLabels := in.Deployment != nil && has(in.Unread, ResourceReplicaSets)
	for i := range in.Pods {
		p := &in.Pods[i]
		owner := metav1.GetControllerOf(p)
		if owner != nil && slices.Contains(f.creators, owner.UID) || byLabels && owner != nil && owner.Kind == KindReplicaSet && selects(in.Deployment.Spec.Selector, p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, older)
	return out
}

func selects(s *metav1.LabelSelector, p *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(p.Labels))
}
