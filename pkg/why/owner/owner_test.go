package owner_test

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

	"github.com/tranche-dev/tranche/pkg/why/kueue"
	"github.com/tranche-dev/tranche/pkg/why/owner"
	"github.com/tranche-dev/tranche/pkg/why/quota"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

var now = time.Date(2026, 11, 20, 3, 14, 0, 0, time.UTC)

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

func leaving(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

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

func workload(of string, conditions ...metav1.Condition) []kueue.Workload {
	w := kueue.Workload{ObjectMeta: owned(named("job-"+of), of)}
	w.Spec.QueueName = "gpus"
	w.Status.Conditions = conditions
	return []kueue.Workload{w}
}

func said(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func failed(kind, name, message string) []corev1.Event {
	return []corev1.Event{{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Type: corev1.EventTypeWarning, Reason: "FailedCreate",
		Message: message, ReportingController: "job-controller", LastTimestamp: metav1.NewTime(now.Add(-time.Minute)),
	}}
}

func deployment(replicas int32) owner.Input {
	d := &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web-1"}}}}
	return owner.Input{Deployment: d, ReplicaSets: []appsv1.ReplicaSet{
		{ObjectMeta: owned(named("web-1"), "web")}, {ObjectMeta: owned(named("other-1"), "other")},
	}}
}

func jobSet(suspend bool, jobs ...batchv1.Job) owner.Input {
	s := &owner.JobSet{ObjectMeta: named("big")}
	s.Spec.Suspend = &suspend
	return owner.Input{JobSet: s, Jobs: jobs}
}

// Who follows the answer about a suspended job must not start what something else holds back.
func TestSuspendedByAnother(t *testing.T) {
	for _, in := range []owner.Input{{Job: job(suspended, controlled)}, {Job: job(suspended), Unread: hidden}} {
		e := owner.Explain(in)
		assert.NotContains(t, fmt.Sprint(e.Remedies), "kubectl patch")
		assert.Equal(t, in.Unread, e.Unread)
	}
	byHand := owner.Explain(owner.Input{Job: job(suspended, func(j *batchv1.Job) {
		controlled(j)
		j.OwnerReferences[0].Kind = "CronJob"
	})})
	assert.NotContains(t, byHand.Summary, "resumes", "a CronJob resumes no jobs")
}

var hidden = []unread.Kind{unread.New(unread.Workloads, "you may not list workloads")}

func controlled(j *batchv1.Job) {
	j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: owner.JobSetKind, Name: "big", UID: "uid-big", Controller: ptr.To(true)}}
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
		in      owner.Input
		state   owner.State
		summary string
		remedy  string
	}{
		"suspended": {owner.Input{Job: job(suspended)}, owner.Suspended,
			"The job team-a/nightly is suspended: spec.suspend is true.", `kubectl patch job nightly -n team-a --type=merge -p '{"spec":{"suspend":false}}'`},
		"kueue has no quota": {
			owner.Input{Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "False", "Pending", "insufficient unused quota"))},
			owner.NotAdmitted, "is suspended until Kueue admits it: it waits for quota. Its queue is gpus.", "kubectl describe localqueue gpus -n team-a"},
		"kueue can never admit": {
			owner.Input{Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "False", "Inadmissible", "ClusterQueue gpus doesn't exist"))},
			owner.NotAdmitted, "it cannot be admitted by its queue as it is", "change the job or its queue"},
		"kueue checks": {
			owner.Input{Job: job(suspended, queued), Workloads: workload("nightly", said("QuotaReserved", "True", "QuotaReserved", ""))},
			owner.NotAdmitted, "it has quota and waits for admission checks", "kubectl describe workload job-nightly -n team-a"},
		"kueue evicted": {
			owner.Input{Job: job(suspended, queued), Workloads: workload("nightly", said("Evicted", "True", "Preempted", "for a job of higher priority"), said("QuotaReserved", "False", "Pending", ""))},
			owner.NotAdmitted, "it was admitted and then evicted (Preempted), and waits for quota again", "wait: Kueue starts it"},
		"kueue resumes": {
			owner.Input{Job: job(suspended, queued), Workloads: workload("nightly", said("Admitted", "True", "Admitted", ""))},
			owner.NotAdmitted, "The job team-a/nightly is admitted by Kueue, which resumes it now.", ""},
		"kueue has no workload": {owner.Input{Job: job(suspended, queued), Workloads: []kueue.Workload{}}, owner.NotAdmitted,
			"in Kueue's queue gpus, but Kueue has created no Workload for it", "kubectl get localqueues -n team-a"},
		"suspended by another": {owner.Input{Job: job(suspended, queued, controlled), Unread: hidden}, owner.Suspended,
			"The job team-a/nightly is suspended: spec.suspend is true. It belongs to the JobSet big, which resumes it.", "kubectl tranche why jobset/big -n team-a"},
		"suspended, kueue is hidden": {owner.Input{Job: job(suspended), Unread: hidden}, owner.Suspended,
			"Whether Kueue has suspended it cannot be determined.", "ask an administrator for the right to list workloads.kueue.x-k8s.io"},
		"kueue is hidden": {owner.Input{Job: job(suspended, queued), Unread: []unread.Kind{unread.New(unread.Workloads, "you may not list workloads")}},
			owner.NotAdmitted, "By its label it waits in Kueue's queue gpus.", "ask an administrator"},
		"complete": {owner.Input{Job: job(condition(batchv1.JobComplete))}, owner.Finished, "is over: it is complete.", ""},
		"has failed": {owner.Input{Job: job(condition(batchv1.JobFailed))}, owner.Finished,
			"is over: it has failed (BackoffLimitExceeded): Job has reached the specified backoff limit.", ""},
		"is deleted": {owner.Input{Job: job(func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: now} })}, owner.Terminating, "is being deleted", ""},
		"wants none": {owner.Input{Job: job(func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](0) })}, owner.Idle, "asks for no pods", "replicas or parallelism"},
		"a quota refuses": {
			owner.Input{Job: job(), Pods: pods("nightly", running), Events: failed("Job", "nightly", "exceeded quota"), Quotas: quotaFull},
			owner.PodsRefused, "The job team-a/nightly has 1 of 3 pods: others cannot be created. The ResourceQuota gpus allows 1 of requests.nvidia.com/mig-2g.20gb, 1 is used, and 1 more is asked for.", "a larger quota"},
		"a quota for others": {owner.Input{Job: job(), Events: failed("Job", "nightly", "exceeded quota"), Quotas: []corev1.ResourceQuota{*scoped}},
			owner.PodsRefused, "has 0 of 3 pods: others cannot be created.", "fix what the message says"},
		"refused once": {owner.Input{Job: job(), Pods: pods("nightly", running, running, running), Events: failed("Job", "nightly", "exceeded quota")},
			owner.Running, "runs: 3 pods are ready.", ""},
		"no pods": {owner.Input{Job: job(), Pods: pods("other", running)}, owner.NoPods, "has no pods yet.", "kubectl describe job nightly -n team-a"},
		"no pods and no events": {owner.Input{Job: job(), Unread: []unread.Kind{unread.New(unread.Events, "you may not list events")}}, owner.NoPods,
			"Without its events it cannot be told why.", ""},
		"pods are hidden": {owner.Input{Job: job(), Unread: []unread.Kind{unread.New(unread.Pods, "you may not list pods")}}, owner.Unknown,
			"cannot be determined", ""},
		"pods wait": {owner.Input{Job: job(), Pods: pods("nightly", nil, running, gated, starting, notReady, leaving, ended)}, owner.Waiting,
			"wants 3 pods: 1 waits for a node, 1 is not to be scheduled yet, 1 is being started, 1 runs and is not ready, 1 is being deleted.", ""},
		"the last of a job": {owner.Input{Job: job(func(j *batchv1.Job) { j.Spec.Completions, j.Status.Succeeded = ptr.To[int32](5), 4 }), Pods: pods("nightly", running, ended)},
			owner.Running, "1 pod is ready", ""},
		"deployment": {func() owner.Input {
			in := deployment(2)
			in.Pods = append(pods("web-1", nil, nil), pods("other-1", nil)...)
			return in
		}(), owner.Waiting, "The deployment team-a/web wants 2 pods: 2 wait for a node.", ""},
		"deployment is refused": {func() owner.Input {
			in := deployment(2)
			in.Events = failed("ReplicaSet", "web-1", "admission webhook denied the request")
			return in
		}(), owner.PodsRefused, "has 0 of 2 pods", "kubectl describe quota -n team-a"},
		"deployment without replicas": {deployment(0), owner.Idle, "asks for no pods", ""},
		"deployment by labels": {func() owner.Input {
			in := deployment(1)
			in.ReplicaSets, in.Unread = nil, []unread.Kind{unread.New(unread.ReplicaSets, "you may not list replicasets")}
			in.Pods = pods("web-1", nil)
			in.Pods[0].OwnerReferences[0].Kind = owner.ReplicaSet
			return in
		}(), owner.Waiting, "wants 1 pod: 1 waits for a node.", ""},
		"stateful set": {owner.Input{StatefulSet: &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}}, Pods: pods("db", nil)},
			owner.Waiting, "wants 3 pods: 1 waits for a node. It creates the other 2 when the pods before are ready.", ""},
		"parallel stateful set": {owner.Input{StatefulSet: &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), PodManagementPolicy: appsv1.ParallelPodManagement}}, Pods: pods("db", nil)},
			owner.Waiting, "It has not created 1 pod yet.", ""},
		"replica set": {owner.Input{ReplicaSet: &appsv1.ReplicaSet{ObjectMeta: named("web-1")}, Pods: pods("web-1", running)}, owner.Running, "1 pod is ready", ""},
		"job set":     {func() owner.Input { in := jobSet(false, ofSet); in.Pods = pods("big-0", running, nil); return in }(), owner.Waiting, "The job set team-a/big wants 2 pods: 1 waits for a node.", ""},
		"job set is suspended": {jobSet(true), owner.Suspended,
			"The job set team-a/big is suspended", "kubectl patch jobset big -n team-a"},
		"job set waits for kueue": {func() owner.Input { in := jobSet(true); in.Workloads = workload("big"); return in }(), owner.NotAdmitted, "it waits for quota", ""},
		"job set without jobs":    {jobSet(false), owner.NoPods, "has no pods yet", ""},
		"job set is over": {func() owner.Input { in := jobSet(false); in.JobSet.Status.TerminalState = "Completed"; return in }(),
			owner.Finished, "its state is Completed", ""},
		"job of a set is refused": {func() owner.Input {
			in := jobSet(false, ofSet)
			in.Events = failed("Job", "big-0", "exceeded quota")
			return in
		}(), owner.PodsRefused, "has 0 of 2 pods", ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.in.Now = now
			e := owner.Explain(test.in)
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
		in      owner.Input
		state   owner.State
		summary string
	}{
		"unused":           {owner.Input{Claim: claim()}, owner.Unused, "The resource claim team-a/gpu has no devices, because no pod uses it"},
		"waits":            {owner.Input{Claim: claim(), Pods: user}, owner.Waiting, "has no devices yet: they are allocated when a pod is scheduled that uses it. Pods: other-0."},
		"of a template":    {owner.Input{Claim: claim(), Pods: fromTemplate}, owner.Waiting, "Pods: other-0."},
		"pods hidden":      {owner.Input{Claim: claim(), Unread: []unread.Kind{unread.New(unread.Pods, "you may not list pods")}}, owner.Unknown, "Which pods use it cannot be determined."},
		"allocated":        {owner.Input{Claim: claim(allocated, reserved)}, owner.Allocated, "has gpu-0000-11-00-0 of node-a for p."},
		"allocated, idle":  {owner.Input{Claim: claim(allocated)}, owner.Allocated, "and no pod uses it"},
		"deleted":          {owner.Input{Claim: claim(func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} })}, owner.Terminating, "is being deleted."},
		"deleted, in use":  {owner.Input{Claim: claim(reserved, func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} })}, owner.Terminating, "when its pods have ended: p."},
		"without a device": {owner.Input{Claim: claim(func(c *resourceapi.ResourceClaim) { c.Status.Allocation = &resourceapi.AllocationResult{} })}, owner.Allocated, "allocated without devices"},
	} {
		t.Run(name, func(t *testing.T) {
			e := owner.Explain(test.in)
			assert.Equal(t, test.state, e.State)
			assert.Contains(t, e.Summary, test.summary)
		})
	}
}

// What claims take of quotas.
func TestQuotasOfClaims(t *testing.T) {
	spec := &resourceapi.ResourceClaimSpec{}
	spec.Devices.Requests = []resourceapi.DeviceRequest{
		{Name: "a", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "small", Count: 2}},
		{Name: "b", FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: "small"}, {DeviceClassName: "large"}}},
		{Name: "c", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "large", AllocationMode: resourceapi.DeviceAllocationModeAll}},
	}
	got := map[string]string{}
	for name, n := range quota.OfClaim(spec, map[string]string{"small": "example.com/small"}) {
		got[string(name)] = n.String()
	}
	assert.Equal(t, map[string]string{
		"count/resourceclaims.resource.k8s.io": "1", "small.deviceclass.resource.k8s.io/devices": "3",
		"requests.example.com/small": "3", "large.deviceclass.resource.k8s.io/devices": "33",
	}, got)
}
