package kueue_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestOf(t *testing.T) {
	all := []kueue.Workload{{}, {ObjectMeta: metav1.ObjectMeta{Name: "w", OwnerReferences: []metav1.OwnerReference{{UID: "a"}, {UID: "b"}}}}}
	assert.Nil(t, kueue.Of(all, &metav1.ObjectMeta{UID: "c"}))
	assert.Equal(t, "w", kueue.Of(all, &metav1.ObjectMeta{UID: "b"}).Name)
	assert.True(t, kueue.IsGate("kueue.x-k8s.io/topology"))
	assert.False(t, kueue.IsGate("example.com/kueue"))
}
