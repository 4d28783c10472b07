package why_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/golden"
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
		Requests: resources("nvidia.com/mig-2g.20gb", "1", "cpu", "2"), Limits: resources("cpu", "3"),
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
	// There is room for one more pod, and more memory is used than allowed, of which the pods request none.
	quotaFull := []corev1.ResourceQuota{{ObjectMeta: named("gpus"), Status: corev1.ResourceQuotaStatus{
		Hard: resources("requests.nvidia.com/mig-2g.20gb", "1", "pods", "2", "memory", "1Gi"),
		Used: resources("requests.nvidia.com/mig-2g.20gb", "1", "pods", "1", "memory", "2Gi"),
	}}, {ObjectMeta: named("all"), Status: corev1.ResourceQuotaStatus{
		Hard: resources("count/pods", "1", "cpu", "3", "requests.cpu", "3", "limits.cpu", "3"), Used: resources("count/pods", "1", "cpu", "2", "requests.cpu", "2", "limits.cpu", "1"),
	}}}
	scoped := []corev1.ResourceQuota{*quotaFull[0].DeepCopy(), *quotaFull[1].DeepCopy()}
	scoped[0].Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	scoped[1].Spec.ScopeSelector = &corev1.ScopeSelector{}
	ofSet := batchv1.Job{ObjectMeta: owned(named("big-0"), "big"), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](2)}}
	idle := []batchv1.Job{*job(condition(batchv1.JobComplete)), *job(suspended), {ObjectMeta: owned(named("small-0"), "small")}}
	idle[0].OwnerReferences, idle[1].OwnerReferences = ofSet.OwnerReferences, ofSet.OwnerReferences
	got := map[string]*why.OwnerExplanation{}
	for name, in := range map[string]why.OwnerInput{
		"suspended":                  {Job: job(suspended)},
		"kueue has no quota":         {Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "False", "Pending", "insufficient unused quota"))},
		"kueue can never admit":      {Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "False", "Inadmissible", "ClusterQueue gpus doesn't exist"))},
		"kueue checks":               {Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "True", "QuotaReserved", ""))},
		"kueue evicted":              {Job: job(suspended, queued), Workloads: workload("nightly", said("Evicted", "True", "Preempted", "for a job of higher priority"), said("QuotaReserved", "False", "Pending", ""))},
		"kueue resumes":              {Job: job(suspended, queued), Workloads: workload("nightly", said("Admitted", "True", "Admitted", ""))},
		"kueue has no workload":      {Job: job(suspended, queued), Workloads: []why.Workload{}},
		"suspended by another":       {Job: job(suspended, queued, controlled), Unread: hidden},
		"suspended by an operator":   {Job: job(suspended, controlled, func(j *batchv1.Job) { j.OwnerReferences[0].Kind = "MPIJob" })},
		"suspended, kueue is hidden": {Job: job(suspended), Unread: hidden},
		"kueue is hidden":            {Job: job(suspended, queued), Unread: []text.Unread{why.Denied(why.ResourceWorkloads, "team-a")}},
		"complete":                   {Job: job(condition(batchv1.JobComplete))},
		"has failed":                 {Job: job(condition(batchv1.JobFailed))},
		"is deleted":                 {Job: job(func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: pending.Now} })},
		"wants none":                 {Job: job(func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](0) })},
		"a quota refuses":            {Job: job(), Pods: pods("nightly", running, leaving), Events: failed("Job", "nightly", "exceeded quota"), Quotas: quotaFull},
		"a quota for others":         {Job: job(), Events: failed("Job", "nightly", "exceeded quota"), Quotas: scoped},
		"refused once":               {Job: job(), Pods: pods("nightly", running, running, running), Events: failed("Job", "nightly", "exceeded quota")},
		"no pods": func() why.OwnerInput {
			in := why.OwnerInput{Job: job(), Pods: pods("other", running), Events: failed("Job", "nightly", "backoff")}
			in.Events[0].Reason = "Other"
			return in
		}(),
		"no pods and no events": {Job: job(), Unread: []text.Unread{why.Denied(why.ResourceEvents, "team-a")}},
		"pods are hidden":       {Job: job(), Events: failed("Job", "nightly", "exceeded quota"), Unread: []text.Unread{why.Denied(why.ResourcePods, "team-a")}},
		"pods wait":             {Job: job(), Pods: pods("nightly", nil, running, gated, starting, notReady, leaving, ended)},
		"the last of a job": {Job: job(condition(batchv1.JobFailed), func(j *batchv1.Job) {
			j.Spec.Completions, j.Status.Succeeded, j.Status.Conditions[0].Status = ptr.To[int32](5), 4, corev1.ConditionFalse
		}), Pods: pods("nightly", running, ended)},
		"deployment": func() why.OwnerInput {
			in := deployment(2)
			in.Pods = append(pods("web-1", nil, nil), pods("other-1", nil)...)
			in.Pods[0].CreationTimestamp = metav1.NewTime(pending.Now)
			return in
		}(),
		"deployment is refused": func() why.OwnerInput {
			in := deployment(2)
			in.Events = failed("ReplicaSet", "web-1", "admission webhook denied the request")
			return in
		}(),
		"deployment without replicas": deployment(0),
		"deployment by labels": func() why.OwnerInput {
			in := deployment(1)
			in.ReplicaSets, in.Unread = nil, []text.Unread{why.Denied(why.ResourceReplicaSets, "team-a")}
			in.Pods = pods("web-1", nil)
			in.Pods[0].OwnerReferences[0].Kind = why.KindReplicaSet
			return in
		}(),
		"stateful set": {StatefulSet: &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2)}}, Pods: pods("db", nil)},
		"parallel stateful set": {StatefulSet: &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), PodManagementPolicy: appsv1.ParallelPodManagement}}, Pods: pods("db", nil)},
		"replica set": {ReplicaSet: &appsv1.ReplicaSet{ObjectMeta: named("web-1")}, Pods: pods("web-1", running)},
		"job set": func() why.OwnerInput {
			in := jobSet(false, append(idle, ofSet)...)
			in.Pods = pods("big-0", running, nil)
			return in
		}(),
		"job set is suspended":    jobSet(true),
		"job set waits for kueue": func() why.OwnerInput { in := jobSet(true); in.Workloads = workload("big"); return in }(),
		"job set without jobs":    jobSet(false),
		"job set is over":         func() why.OwnerInput { in := jobSet(false); in.JobSet.Status.TerminalState = "Completed"; return in }(),
		"job of a set is refused": func() why.OwnerInput {
			in := jobSet(false, ofSet)
			in.Events = failed("Job", "big-0", "exceeded quota")
			return in
		}(),
	} {
		in.Now = pending.Now
		slices.Reverse(in.Pods) // The oldest come first.
		got[name] = why.ExplainOwner(in)
	}
	golden.Equal(t, "testdata/owners.yaml", yamlOf(t, got))
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
	user := pods("other", nil, nil)
	for i := range user {
		user[i].Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: ptr.To("gpu")}}
	}
	fromTemplate := pods("other", nil)
	fromTemplate[0].Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "a", ResourceClaimName: ptr.To("gpu")}}
	got := map[string]*why.OwnerExplanation{}
	for name, in := range map[string]why.OwnerInput{
		"unused":        {Claim: claim(), Pods: pods("other", nil)},
		"of a pod":      {Claim: claim(func(c *resourceapi.ResourceClaim) { c.ObjectMeta = owned(c.ObjectMeta, "other-0") }), Pods: pods("other", nil)},
		"waits":         {Claim: claim(), Pods: user},
		"of a template": {Claim: claim(), Pods: fromTemplate},
		"pods hidden":   {Claim: claim(), Unread: []text.Unread{why.Denied(why.ResourcePods, "team-a")}},
		"allocated":     {Claim: claim(allocated, reserved)},
		"of a PodGroup": {Claim: claim(allocated, func(c *resourceapi.ResourceClaim) {
			c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "workers"}}
		})},
		"allocated, idle":  {Claim: claim(allocated)},
		"deleted":          {Claim: claim(func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{Time: pending.Now} })},
		"deleted, in use":  {Claim: claim(reserved, func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{Time: pending.Now} })},
		"without a device": {Claim: claim(func(c *resourceapi.ResourceClaim) { c.Status.Allocation = &resourceapi.AllocationResult{} })},
	} {
		slices.Reverse(in.Pods)
		got[name] = why.ExplainOwner(in)
	}
	golden.Equal(t, "testdata/claims.yaml", yamlOf(t, got))
}
