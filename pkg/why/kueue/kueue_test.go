package kueue_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/why/kueue"
)

func TestWaits(t *testing.T) {
	for name, test := range map[string]struct {
		workload string
		want     kueue.Status
	}{
		"just created": {`{}`, kueue.Status{State: kueue.Pending, Text: "waits for quota"}},
		"no quota": {`{"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "m"}]}}`,
			kueue.Status{State: kueue.Pending, Reason: "WaitingForQuota", Message: "m", Text: "waits for quota"}},
		"misconfigured": {`{"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Misconfigured", "message": "m"}]}}`,
			kueue.Status{State: kueue.Inadmissible, Reason: "Misconfigured", Message: "m", Text: "cannot be admitted by its queue as it is"}},
		"checks": {`{"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}], "admissionChecks": [{"name": "a", "state": "Ready"}, {"name": "b", "state": "Pending", "message": "m"}]}}`,
			kueue.Status{State: kueue.Checking, Reason: "b", Message: "b is Pending. m", Text: "has quota and waits for admission checks"}},
		"evicted": {`{"status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted", "message": "e"}]}}`,
			kueue.Status{State: kueue.Evicted, Reason: "Preempted", Message: "e", Text: "was admitted and then evicted (Preempted), and waits for quota again"}},
		"deactivated": {`{"spec": {"active": false}, "status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "Deactivated", "message": "d"}]}}`,
			kueue.Status{State: kueue.Deactivated, Reason: "Deactivated", Message: "d", Text: "is deactivated (spec.active of its Workload is false)"}},
		"admitted after an eviction": {`{"spec": {"active": true}, "status": {"conditions": [{"type": "Evicted", "status": "False"}, {"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}]}}`,
			kueue.Status{State: kueue.Admitted, Text: "is admitted"}},
		"finished": {`{"status": {"conditions": [{"type": "Admitted", "status": "True"}, {"type": "Finished", "status": "True", "reason": "Succeeded"}]}}`,
			kueue.Status{State: kueue.Finished, Reason: "Succeeded", Text: "has finished"}},
	} {
		t.Run(name, func(t *testing.T) {
			var w kueue.Workload
			require.NoError(t, json.Unmarshal([]byte(test.workload), &w))
			assert.Equal(t, test.want, w.Waits())
		})
	}
}

// The Workload of a pod is that of its job: of an elastic one the latest that is not over.
func TestOfPod(t *testing.T) {
	owned := func(name, by string, age time.Duration, conditions ...metav1.Condition) kueue.Workload {
		w := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{UID: types.UID(by)}}}}
		w.CreationTimestamp = metav1.NewTime(time.Unix(0, 0).Add(-age))
		w.Status.Conditions = conditions
		return w
	}
	all := []kueue.Workload{
		owned("first", "job", 3*time.Hour, metav1.Condition{Type: "Finished", Status: metav1.ConditionTrue}),
		owned("second", "job", 2*time.Hour), owned("third", "job", time.Hour), owned("of-the-set", "set", time.Hour), owned("of-the-pod", "pod", time.Hour),
	}
	pod := func(uid, job, named string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{
			UID: types.UID(uid), OwnerReferences: []metav1.OwnerReference{{UID: types.UID(job), Controller: ptr.To(true)}},
			Annotations: map[string]string{"kueue.x-k8s.io/workload": named},
		}
	}
	assert.Equal(t, "third", kueue.OfPod(all, pod("a", "job", "second")).Name)
	assert.Equal(t, "of-the-set", kueue.OfPod(all, pod("a", "other", "of-the-set")).Name)
	assert.Equal(t, "of-the-pod", kueue.OfPod(all, pod("pod", "job", "")).Name)
	assert.Nil(t, kueue.OfPod(all, pod("a", "other", "")))
	assert.Nil(t, kueue.OfPod(all, &metav1.ObjectMeta{UID: "a"}))
	assert.Equal(t, "first", kueue.Of(all[:1], &metav1.ObjectMeta{UID: "job"}).Name, "there is no later one")
}

func TestOf(t *testing.T) {
	all := []kueue.Workload{{}, {ObjectMeta: metav1.ObjectMeta{Name: "w", OwnerReferences: []metav1.OwnerReference{{UID: "a"}, {UID: "b"}}}}}
	assert.Nil(t, kueue.Of(all, &metav1.ObjectMeta{UID: "c"}))
	assert.Equal(t, "w", kueue.Of(all, &metav1.ObjectMeta{UID: "b"}).Name)
	assert.True(t, kueue.IsGate("kueue.x-k8s.io/topology"))
	assert.False(t, kueue.IsGate("example.com/kueue"))
}
