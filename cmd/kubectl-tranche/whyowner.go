package main

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/kueue"
	"github.com/tranche-dev/tranche/pkg/why/owner"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// explainOwner explains the pods of an owner, or a claim: itself, and one pod of each group that waits.
func (r *whyReader) explainOwner(ctx context.Context, t target) (*owner.Explanation, error) {
	in, err := r.readOwner(ctx, t)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no %s %s in the namespace %s: %w", t.kind, t.name, r.namespace, err)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("you may not get the %s %s in the namespace %s; ask for the role view or tranche-user-namespace: %w", t.kind, t.name, r.namespace, err)
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s: %w", t.kind, r.namespace, t.name, err)
	}
	e := owner.Explain(in)
	for _, g := range e.Groups {
		for i := range in.Pods {
			if in.Pods[i].Name != g.Pods[0] {
				continue
			}
			input, err := r.readFor(ctx, &in.Pods[i])
			if err != nil {
				return nil, err
			}
			e.Pods = append(e.Pods, why.Explain(ctx, input))
		}
	}
	return e, nil
}

// readOwner reads an owner, which must exist, and what explains it.
func (r *whyReader) readOwner(ctx context.Context, t target) (owner.Input, error) {
	in := owner.Input{Now: r.now}
	if err := r.readObject(ctx, t, &in); err != nil {
		return in, err
	}
	if in.Deployment != nil {
		readInto(ctx, r, r.namespace, &in.ReplicaSets, &in.Unread, unread.ReplicaSets)
	}
	if in.JobSet != nil {
		readInto(ctx, r, r.namespace, &in.Jobs, &in.Unread, unread.Jobs)
	}
	readInto(ctx, r, r.namespace, &in.Pods, &in.Unread, unread.Pods)
	if in.Claim != nil {
		return in, nil
	}
	readInto(ctx, r, r.namespace, &in.Events, &in.Unread, unread.Events)
	readInto(ctx, r, r.namespace, &in.Quotas, &in.Unread, unread.Quotas)
	var err error
	in.Workloads, err = r.workloads(ctx)
	note(&in.Unread, unread.Workloads, err)
	return in, nil
}

func (r *whyReader) readObject(ctx context.Context, t target, in *owner.Input) (err error) {
	k, o := r.kubernetes, metav1.GetOptions{}
	switch t.kind {
	case owner.Job:
		in.Job, err = k.BatchV1().Jobs(r.namespace).Get(ctx, t.name, o)
	case owner.Deployment:
		in.Deployment, err = k.AppsV1().Deployments(r.namespace).Get(ctx, t.name, o)
	case owner.ReplicaSet:
		in.ReplicaSet, err = k.AppsV1().ReplicaSets(r.namespace).Get(ctx, t.name, o)
	case owner.StatefulSet:
		in.StatefulSet, err = k.AppsV1().StatefulSets(r.namespace).Get(ctx, t.name, o)
	case owner.ResourceClaim:
		in.Claim, err = k.ResourceV1().ResourceClaims(r.namespace).Get(ctx, t.name, o)
	default:
		data, err := r.raw(ctx, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/"+r.namespace+"/jobsets/"+t.name)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &in.JobSet)
	}
	return err
}

// workloads reads Kueue's Workloads; none if the cluster has no Kueue.
func (r *whyReader) workloads(ctx context.Context) ([]kueue.Workload, error) {
	for _, version := range kueue.Versions {
		data, err := r.raw(ctx, "/apis/"+kueue.Group+"/"+version+"/namespaces/"+r.namespace+"/workloads")
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var all struct {
			Items []kueue.Workload `json:"items"`
		}
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("read Kueue's Workloads: %w", err)
		}
		return all.Items, nil
	}
	return []kueue.Workload{}, nil
}
