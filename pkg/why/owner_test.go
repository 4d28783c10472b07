package why_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/pending"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)}
}

func owned(o metav1.ObjectMeta, by string) metav1.ObjectMeta {
	o.OwnerReferences = []metav1.OwnerReference{{Name: by, UID: types.UID("uid-" + by), Controller: ptr.To(true)}}
	return o
}

type change func(*corev1.Pod)

func running(p *corev1.Pod) {
	p.Spec.NodeName, p.Status.Phase = "node-a", corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func notReady(p *corev1.Pod) { running(p); p.Status.Conditions = nil }

func starting(p *corev1.Pod) { p.Spec.NodeName = "node-a" }

func gated(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
}

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func leaving(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: pending.Now} }

// pods of an owner: one for each change.
func pods(by string, changes ...change) (out []corev1.Pod) {
	for i, change := range changes {
		p := corev1.Pod{ObjectMeta: owned(named(fmt.Sprintf("%s-%d", by, i)), by), Status: corev1.PodStatus{Phase: corev1.PodPending}}
		p.Labels = map[string]string{"app": by}
		if change != nil {
			change(&p)
		}
		out = append(out, p)
	}
	return out
}

func job(changes ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: named("nightly"), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3)}}
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/mig-2g.20gb": resource.MustParse("1"), "cpu": resource.MustParse("2")},
	}}}
	for _, f := range changes {
		f(j)
	}
	return j
}

func suspended(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }

func queued(j *batchv1.Job) { j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "gpus"} }

func condition(kind batchv1.JobConditionType) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "Job has reached the specified backoff limit"}}
	}
}

func workload(of string, conditions ...metav1.Condition) []why.Workload {
	w := why.Workload{ObjectMeta: owned(named("job-"+of), of)}
	w.Spec.QueueName = "gpus"
	w.Status.Conditions = conditions
	return []why.Workload{w}
}

func said(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func failed(kind, name, message string) []corev1.Event {
	return []corev1.Event{{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Type: corev1.EventTypeWarning, Reason: "FailedCreate",
		Message: message, ReportingController: "job-controller", LastTimestamp: metav1.NewTime(pending.Now.Add(-time.Minute)),
	}}
}

func deployment(replicas int32) why.OwnerInput {
	d := &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web-1"}}}}
	return why.OwnerInput{Deployment: d, ReplicaSets: []appsv1.ReplicaSet{
		{ObjectMeta: owned(named("web-1"), "web")}, {ObjectMeta: owned(named("other-1"), "other")},
	}}
}

func jobSet(suspend bool, jobs ...batchv1.Job) why.OwnerInput {
	s := &why.JobSet{ObjectMeta: named("big")}
	s.Spec.Suspend = &suspend
	return why.OwnerInput{JobSet: s, Jobs: jobs}
}

// Who follows the answer about a suspended job must not start what something else holds back.
func TestSuspendedByAnother(t *testing.T) {
	for _, in := range []why.OwnerInput{{Job: job(suspended, controlled)}, {Job: job(suspended), Unread: hidden}} {
		e := why.ExplainOwner(in)
		assert.NotContains(t, fmt.Sprint(e.Remedies), "kubectl patch")
		assert.Equal(t, in.Unread, e.Unread)
	}
	byHand := why.ExplainOwner(why.OwnerInput{Job: job(suspended, func(j *batchv1.Job) {
		controlled(j)
		j.OwnerReferences[0].Kind = "CronJob"
	})})
	assert.NotContains(t, byHand.Summary, "resumes", "a CronJob resumes no jobs")
}

var hidden = []text.Unread{why.Denied(why.ResourceWorkloads, "team-a")}

func controlled(j *batchv1.Job) {
	j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: why.KindJobSet, Name: "big", UID: "uid-big", Controller: ptr.To(true)}}
}

func TestExplain(t *testing.T) {
	quotaFull := []corev1.ResourceQuota{{ObjectMeta: named("gpus"), Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{"requests.nvidia.com/mig-2g.20gb": resource.MustParse("1")},
		Used: corev1.ResourceList{"requests.nvidia.com/mig-2g.20gb": resource.MustParse("1")},
	}}}
	scoped := quotaFull[0].DeepCopy()
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	ofSet := batchv1.Job{ObjectMeta: owned(named("big-0"), "big"), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](2)}}
	for name, test := range map[string]struct {
		in      why.OwnerInput
		state   why.State
		summary string
		remedy  string
	}{
		"suspended": {why.OwnerInput{Job: job(suspended)}, why.Suspended,
			"The job team-a/nightly is suspended: spec.suspend is true.", `kubectl patch job nightly -n team-a --type=merge -p '{"spec":{"suspend":false}}'`},
		"kueue has no quota": {
			why.OwnerInput{Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "False", "Pending", "insufficient unused quota"))},
			why.NotAdmitted, "is suspended until Kueue admits it: it waits for quota. Its queue is gpus.", "kubectl describe localqueue gpus -n team-a"},
		"kueue can never admit": {
			why.OwnerInput{Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "False", "Inadmissible", "ClusterQueue gpus doesn't exist"))},
			why.NotAdmitted, "it cannot be admitted by its queue as it is", "change the job or its queue"},
		"kueue checks": {
			why.OwnerInput{Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "True", "QuotaReserved", ""))},
			why.NotAdmitted, "it has quota and waits for admission checks", "kubectl describe workload job-nightly -n team-a"},
		"kueue evicted": {
			why.OwnerInput{Job: job(suspended, queued), Workloads: workload("nightly", said("Evicted", "True", "Preempted", "for a job of higher priority"), said("QuotaReserved", "False", "Pending", ""))},
			why.NotAdmitted, "it was admitted and then evicted (Preempted), and waits for quota again", "wait: Kueue starts it"},
		"kueue resumes": {
			why.OwnerInput{Job: job(suspended, queued), Workloads: workload("nightly", said("Admitted", "True", "Admitted", ""))},
			why.NotAdmitted, "The job team-a/nightly is admitted by Kueue, which resumes it now.", ""},
		"kueue has no workload": {why.OwnerInput{Job: job(suspended, queued), Workloads: []why.Workload{}}, why.NotAdmitted,
			"in Kueue's queue gpus, but Kueue has created no Workload for it", "kubectl get localqueues -n team-a"},
		"suspended by another": {why.OwnerInput{Job: job(suspended, queued, controlled), Unread: hidden}, why.Suspended,
			"The job team-a/nightly is suspended: spec.suspend is true. It belongs to the JobSet big, which resumes it.", "kubectl tranche why jobset/big -n team-a"},
		"suspended, kueue is hidden": {why.OwnerInput{Job: job(suspended), Unread: hidden}, why.Suspended,
			"Whether Kueue has suspended it cannot be determined.", "ask an administrator for the right to list workloads.kueue.x-k8s.io"},
		"kueue is hidden": {why.OwnerInput{Job: job(suspended, queued), Unread: []text.Unread{why.Denied(why.ResourceWorkloads, "team-a")}},
			why.NotAdmitted, "By its label it waits in Kueue's queue gpus.", "ask an administrator"},
		"complete": {why.OwnerInput{Job: job(condition(batchv1.JobComplete))}, why.Finished, "has finished: it is complete.", ""},
		"has failed": {why.OwnerInput{Job: job(condition(batchv1.JobFailed))}, why.Finished,
			"has finished: it has failed (BackoffLimitExceeded): Job has reached the specified backoff limit.", ""},
		"is deleted": {why.OwnerInput{Job: job(func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: pending.Now} })}, why.Terminating, "is being deleted", ""},
		"wants none": {why.OwnerInput{Job: job(func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](0) })}, why.Idle, "wants no pods", "replicas or parallelism"},
		"a quota refuses": {
			why.OwnerInput{Job: job(), Pods: pods("nightly", running), Events: failed("Job", "nightly", "exceeded quota"), Quotas: quotaFull},
			why.PodsRefused, "The job team-a/nightly has 1 of 3 pods: others cannot be created. The ResourceQuota gpus allows 1 of requests.nvidia.com/mig-2g.20gb, 1 is used, and 1 more is requested.", "a larger quota"},
		"a quota for others": {why.OwnerInput{Job: job(), Events: failed("Job", "nightly", "exceeded quota"), Quotas: []corev1.ResourceQuota{*scoped}},
			why.PodsRefused, "has 0 of 3 pods: others cannot be created.", "fix what the message says"},
		"refused once": {why.OwnerInput{Job: job(), Pods: pods("nightly", running, running, running), Events: failed("Job", "nightly", "exceeded quota")},
			why.Running, "runs: all pods are ready (3).", ""},
		"no pods": {why.OwnerInput{Job: job(), Pods: pods("other", running)}, why.NoPods, "has no pods yet.", "kubectl describe job nightly -n team-a"},
		"no pods and no events": {why.OwnerInput{Job: job(), Unread: []text.Unread{why.Denied(why.ResourceEvents, "team-a")}}, why.NoPods,
			"Without its events it cannot be determined why.", ""},
		"pods are hidden": {why.OwnerInput{Job: job(), Unread: []text.Unread{why.Denied(why.ResourcePods, "team-a")}}, why.Unknown,
			"cannot be determined", ""},
		"pods wait": {why.OwnerInput{Job: job(), Pods: pods("nightly", nil, running, gated, starting, notReady, leaving, ended)}, why.Waiting,
			"waits for its pods (3 wanted): 1 waiting for a node, 1 not to be scheduled yet, 1 starting, 1 not ready, 1 being deleted.", ""},
		"the last of a job": {why.OwnerInput{Job: job(func(j *batchv1.Job) { j.Spec.Completions, j.Status.Succeeded = ptr.To[int32](5), 4 }), Pods: pods("nightly", running, ended)},
			why.Running, "all pods are ready (1)", ""},
		"deployment": {func() why.OwnerInput {
			in := deployment(2)
			in.Pods = append(pods("web-1", nil, nil), pods("other-1", nil)...)
			return in
		}(), why.Waiting, "The deployment team-a/web waits for its pods (2 wanted): 2 waiting for a node.", ""},
		"deployment is refused": {func() why.OwnerInput {
			in := deployment(2)
			in.Events = failed("ReplicaSet", "web-1", "admission webhook denied the request")
			return in
		}(), why.PodsRefused, "has 0 of 2 pods", "kubectl describe quota -n team-a"},
		"deployment without replicas": {deployment(0), why.Idle, "wants no pods", ""},
		"deployment by labels": {func() why.OwnerInput {
			in := deployment(1)
			in.ReplicaSets, in.Unread = nil, []text.Unread{why.Denied(why.ResourceReplicaSets, "team-a")}
			in.Pods = pods("web-1", nil)
			in.Pods[0].OwnerReferences[0].Kind = why.KindReplicaSet
			return in
		}(), why.Waiting, "waits for its pods (1 wanted): 1 waiting for a node.", ""},
		"stateful set": {why.OwnerInput{StatefulSet: &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}}, Pods: pods("db", nil)},
			why.Waiting, "waits for its pods (3 wanted): 1 waiting for a node, 2 not created yet. It creates the other 2 when the previous pods are ready.", ""},
		"parallel stateful set": {why.OwnerInput{StatefulSet: &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), PodManagementPolicy: appsv1.ParallelPodManagement}}, Pods: pods("db", nil)},
			why.Waiting, "1 not created yet.", ""},
		"replica set": {why.OwnerInput{ReplicaSet: &appsv1.ReplicaSet{ObjectMeta: named("web-1")}, Pods: pods("web-1", running)}, why.Running, "all pods are ready (1)", ""},
		"job set":     {func() why.OwnerInput { in := jobSet(false, ofSet); in.Pods = pods("big-0", running, nil); return in }(), why.Waiting, "The job set team-a/big waits for its pods (2 wanted): 1 waiting for a node.", ""},
		"job set is suspended": {jobSet(true), why.Suspended,
			"The job set team-a/big is suspended", "kubectl patch jobset big -n team-a"},
		"job set waits for kueue": {func() why.OwnerInput { in := jobSet(true); in.Workloads = workload("big"); return in }(), why.NotAdmitted, "it waits for quota", ""},
		"job set without jobs":    {jobSet(false), why.NoPods, "has no pods yet", ""},
		"job set is over": {func() why.OwnerInput { in := jobSet(false); in.JobSet.Status.TerminalState = "Completed"; return in }(),
			why.Finished, "its state is Completed", ""},
		"job of a set is refused": {func() why.OwnerInput {
			in := jobSet(false, ofSet)
			in.Events = failed("Job", "big-0", "exceeded quota")
			return in
		}(), why.PodsRefused, "has 0 of 2 pods", ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.in.Now = pending.Now
			e := why.ExplainOwner(test.in)
			assert.Equal(t, test.state, e.State, e.Summary)
			assert.Contains(t, e.Summary, test.summary)
			if test.remedy == "" {
				return
			}
			require.NotEmpty(t, e.Remedies)
			assert.Contains(t, fmt.Sprint(e.Remedies), test.remedy)
		})
	}
}

func claim(changes ...func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: named("gpu")}
	for _, f := range changes {
		f(c)
	}
	return c
}

func allocated(c *resourceapi.ResourceClaim) {
	c.Status.Allocation = &resourceapi.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Pool: "node-a", Device: "gpu-0000-11-00-0"}}
}

func reserved(c *resourceapi.ResourceClaim) {
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}}
}

func TestClaims(t *testing.T) {
	user := pods("other", nil)
	user[0].Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: ptr.To("gpu")}}
	fromTemplate := pods("other", nil)
	fromTemplate[0].Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "a", ResourceClaimName: ptr.To("gpu")}}
	for name, test := range map[string]struct {
		in      why.OwnerInput
		state   why.State
		summary string
	}{
		"unused":        {why.OwnerInput{Claim: claim()}, why.Unused, "The resource claim team-a/gpu has no devices, because no pod uses it"},
		"waits":         {why.OwnerInput{Claim: claim(), Pods: user}, why.Waiting, "has no devices yet: they are allocated when a pod is scheduled that uses it. Pods: other-0."},
		"of a template": {why.OwnerInput{Claim: claim(), Pods: fromTemplate}, why.Waiting, "Pods: other-0."},
		"pods hidden":   {why.OwnerInput{Claim: claim(), Unread: []text.Unread{why.Denied(why.ResourcePods, "team-a")}}, why.Unknown, "Which pods use it cannot be determined."},
		"allocated":     {why.OwnerInput{Claim: claim(allocated, reserved)}, why.Allocated, "has gpu-0000-11-00-0 of node-a for p."},
		"of a PodGroup": {why.OwnerInput{Claim: claim(allocated, func(c *resourceapi.ResourceClaim) {
			c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "workers"}}
		})}, why.Allocated, "has gpu-0000-11-00-0 of node-a for podgroups.scheduling.k8s.io/workers."},
		"allocated, idle":  {why.OwnerInput{Claim: claim(allocated)}, why.Allocated, "and no pod uses it"},
		"deleted":          {why.OwnerInput{Claim: claim(func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{Time: pending.Now} })}, why.Terminating, "is being deleted."},
		"deleted, in use":  {why.OwnerInput{Claim: claim(reserved, func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{Time: pending.Now} })}, why.Terminating, "when its pods have ended: p."},
		"without a device": {why.OwnerInput{Claim: claim(func(c *resourceapi.ResourceClaim) { c.Status.Allocation = &resourceapi.AllocationResult{} })}, why.Allocated, "allocated without devices"},
	} {
		t.Run(name, func(t *testing.T) {
			e := why.ExplainOwner(test.in)
			assert.Equal(t, test.state, e.State)
			assert.Contains(t, e.Summary, test.summary)
		})
	}
}
