package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/clientfake"
)

func owned(o metav1.Object, kind, name string) {
	o.SetOwnerReferences([]metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: ptr.To(true)}})
}

func metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)}
}

func podOf(kind, owner, name string) *corev1.Pod {
	pod := podIn("team-a", name)
	pod.Status.Phase = corev1.PodPending
	owned(pod, kind, owner)
	return pod
}

// The pods of owners are found by who owns them, and one of each group is explained.
func TestWhyOwners(t *testing.T) {
	set := &appsv1.ReplicaSet{ObjectMeta: metaOf("web-1")}
	owned(set, why.KindDeployment, "web")
	job := &batchv1.Job{ObjectMeta: metaOf("big-0")}
	owned(job, why.KindJobSet, "big")
	r := reading(whyFake())
	for _, o := range []runtime.Object{
		&batchv1.Job{ObjectMeta: metaOf("nightly"), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3)}},
		&appsv1.Deployment{ObjectMeta: metaOf("web")}, set, &appsv1.StatefulSet{ObjectMeta: metaOf("db")}, job,
		podOf(why.KindJob, "nightly", "nightly-a"), podOf(why.KindJob, "nightly", "nightly-b"), podOf(why.KindReplicaSet, "web-1", "web-1-a"),
		podOf(why.KindStatefulSet, "db", "db-0"), podOf(why.KindJob, "big-0", "big-0-a"),
	} {
		require.NoError(t, r.Kubernetes.(interface {
			Tracker() clienttesting.ObjectTracker
		}).Tracker().Add(o))
	}
	r.raw = func(_ context.Context, path string) ([]byte, error) {
		if strings.HasSuffix(path, "/jobsets/big") {
			return []byte(`{"metadata": {"namespace": "team-a", "name": "big", "uid": "uid-big"}, "spec": {}}`), nil
		}
		return notServed(t.Context(), path)
	}
	for asked, pods := range map[target][]string{
		{why.KindJob, "", "nightly"}:       {"nightly-a", "nightly-b"},
		{why.KindDeployment, "", "web"}:    {"web-1-a"},
		{why.KindReplicaSet, "", "web-1"}:  {"web-1-a"},
		{why.KindStatefulSet, "", "db"}:    {"db-0"},
		{why.KindJobSet, "", "big"}:        {"big-0-a"},
		{why.KindResourceClaim, "", "two"}: nil,
	} {
		e, err := r.explainOwner(t.Context(), asked)
		require.NoError(t, err, asked)
		assert.Equal(t, asked.kind, e.Kind)
		assert.Empty(t, e.Unread)
		if pods == nil {
			assert.Equal(t, why.Unused, e.State)
			continue
		}
		assert.Equal(t, why.Waiting, e.State)
		assert.Equal(t, []why.Group{{Waits: why.Unscheduled, Pods: pods}}, e.Groups)
		require.Len(t, e.Pods, 1)
		assert.Equal(t, pods[0], e.Pods[0].Pod)
		assert.Equal(t, why.NoDevices, e.Pods[0].State)
	}
	_, err := r.explainOwner(t.Context(), target{why.KindJob, "", "weekly"})
	require.ErrorContains(t, err, "there is no Job weekly in the namespace team-a")
	_, err = r.explainOwner(t.Context(), target{why.KindJobSet, "", "small"})
	require.ErrorContains(t, err, "there is no JobSet small")
}

// What cannot be read of an owner is said.
func TestWhyOwnersWithoutRights(t *testing.T) {
	client := whyFake()
	require.NoError(t, client.Tracker().Add(&batchv1.Job{ObjectMeta: metaOf("nightly"), Spec: batchv1.JobSpec{Suspend: ptr.To(true)}}))
	for _, resource := range []string{"pods", "events", "resourcequotas"} {
		forbid(client, resource, "", "team-a")
	}
	r := reading(client)
	r.raw = func(context.Context, string) ([]byte, error) {
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: why.KueueGroup, Resource: "workloads"}, "", errors.New("no"))
	}
	in, err := r.readOwner(t.Context(), target{why.KindJob, "", "nightly"})
	require.NoError(t, err)
	var resources []string
	for _, u := range in.Unread {
		resources = append(resources, u.Namespace+" "+u.Resource)
	}
	assert.Equal(t, []string{"team-a pods", "team-a events", "team-a resourcequotas", "team-a workloads.kueue.x-k8s.io"}, resources)
	assert.Equal(t, why.Suspended, why.ExplainOwner(in).State)

	clientfake.React(&client.Fake, "get", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "nightly", errors.New("no"))
	})
	_, err = r.explainOwner(t.Context(), target{why.KindJob, "", "nightly"})
	require.ErrorContains(t, err, "you may not get the Job nightly")
}

// Workloads are read in the version that the cluster serves.
func TestWorkloads(t *testing.T) {
	r := reading(whyFake())
	r.raw = func(_ context.Context, path string) ([]byte, error) {
		if !strings.Contains(path, "/v1beta1/") {
			return notServed(t.Context(), path)
		}
		return fmt.Appendf(nil, `{"items": [{"metadata": {"name": "job-nightly"}, "spec": {"queueName": "gpus"}, "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "m"}]}}]}`), nil
	}
	all, err := r.workloads(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "gpus", all[0].Spec.QueueName)
	require.Len(t, all[0].Status.Conditions, 1)
	assert.Equal(t, "Pending", all[0].Status.Conditions[0].Reason)
	r.raw = func(context.Context, string) ([]byte, error) { return []byte("{"), nil }
	_, err = r.workloads(t.Context())
	require.ErrorContains(t, err, "read Kueue's Workloads")
}
