package why

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestWhatAWorkloadWaitsFor(t *testing.T) {
	for name, test := range map[string]struct {
		workload string
		want     pending
	}{
		"just created": {`{}`, pending{State: WorkloadPending, Text: "waits for quota"}},
		"no quota": {`{"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "m"}]}}`,
			pending{State: WorkloadPending, Reason: "WaitingForQuota", Message: "m", Text: "waits for quota"}},
		"misconfigured": {`{"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Misconfigured", "message": "m"}]}}`,
			pending{State: WorkloadInadmissible, Reason: "Misconfigured", Message: "m", Text: "cannot be admitted by its queue as it is"}},
		"checks": {`{"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}], "admissionChecks": [{"name": "a", "state": "Ready"}, {"name": "b", "state": "Pending", "message": "m"}]}}`,
			pending{State: WorkloadChecking, Reason: "b", Message: "b is Pending. m", Text: "has quota and waits for admission checks"}},
		"evicted": {`{"status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted", "message": "e"}]}}`,
			pending{State: WorkloadEvicted, Reason: "Preempted", Message: "e", Text: "was admitted and then evicted (Preempted), and waits for quota again"}},
		"deactivated": {`{"spec": {"active": false}, "status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "Deactivated", "message": "d"}]}}`,
			pending{State: WorkloadDeactivated, Reason: "Deactivated", Message: "d", Text: "is deactivated (spec.active of its Workload is false)"}},
		"admitted after an eviction": {`{"spec": {"active": true}, "status": {"conditions": [{"type": "Evicted", "status": "False"}, {"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}]}}`,
			pending{State: WorkloadAdmitted, Text: "is admitted"}},
		"finished": {`{"status": {"conditions": [{"type": "Admitted", "status": "True"}, {"type": "Finished", "status": "True", "reason": "Succeeded"}]}}`,
			pending{State: WorkloadFinished, Reason: "Succeeded", Text: "has finished"}},
	} {
		t.Run(name, func(t *testing.T) {
			var w Workload
			require.NoError(t, json.Unmarshal([]byte(test.workload), &w))
			assert.Equal(t, test.want, w.pending())
		})
	}
}

// The Workload of a pod is that of its job: of an elastic one the latest that is not over.
func TestWorkloadOfPod(t *testing.T) {
	owned := func(name, by string, age time.Duration, conditions ...metav1.Condition) Workload {
		w := Workload{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{UID: types.UID(by)}}}}
		w.CreationTimestamp = metav1.NewTime(time.Unix(0, 0).Add(-age))
		w.Status.Conditions = conditions
		return w
	}
	all := []Workload{
		owned("first", "job", 3*time.Hour, metav1.Condition{Type: "Finished", Status: metav1.ConditionTrue}),
		owned("second", "job", 2*time.Hour), owned("third", "job", time.Hour), owned("of-the-set", "set", time.Hour), owned("of-the-pod", "pod", time.Hour),
		owned("done", "job", 0, metav1.Condition{Type: "Finished", Status: metav1.ConditionTrue}),
	}
	pod := func(uid, job, named string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{
			UID: types.UID(uid), OwnerReferences: []metav1.OwnerReference{{UID: types.UID(job), Controller: ptr.To(true)}},
			Annotations: map[string]string{"kueue.x-k8s.io/workload": named},
		}
	}
	assert.Equal(t, "third", workloadOfPod(all, pod("a", "job", "second")).Name)
	assert.Equal(t, "of-the-set", workloadOfPod(all, pod("a", "other", "of-the-set")).Name)
	assert.Equal(t, "of-the-pod", workloadOfPod(all, pod("pod", "job", "")).Name)
	assert.Nil(t, workloadOfPod(all, pod("a", "other", "")))
	assert.Nil(t, workloadOfPod(all, &metav1.ObjectMeta{UID: "a"}))
	assert.Equal(t, "first", workloadOf(all[:1], "job").Name, "there is no later one")
}

func TestWorkloadOf(t *testing.T) {
	all := []Workload{{}, {ObjectMeta: metav1.ObjectMeta{Name: "w", OwnerReferences: []metav1.OwnerReference{{UID: "a"}, {UID: "b"}}}}}
	assert.Nil(t, workloadOf(all, "c"))
	assert.Equal(t, "w", workloadOf(all, "b").Name)
	gates := []corev1.PodSchedulingGate{{Name: "example.com/kueue"}, {Name: "kueue.x-k8s.io/topology"}}
	assert.True(t, WaitsForKueue(&corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: gates}}))
	assert.False(t, WaitsForKueue(&corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: gates[:1]}}))
}
