package main

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/why"
)

// explainOwner explains the pods of an owner, or a claim: itself, and one pod of each group that waits.
func (r *whyReader) explainOwner(ctx context.Context, t target) (*why.OwnerExplanation, error) {
	in, err := r.readOwner(ctx, t)
	switch {
	case apierrors.IsNotFound(err) && r.noNamespace(ctx):
		return nil, fmt.Errorf("there is no namespace %s: %w", r.namespace, err)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no %s %s in the namespace %s: %w", t.kind, t.name, r.namespace, err)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("you may not get the %s %s in the namespace %s: %w", t.kind, t.name, r.namespace, err)
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s: %w", t.kind, r.namespace, t.name, err)
	}
	e := why.ExplainOwner(in)
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

func (r *whyReader) readOwner(ctx context.Context, t target) (why.OwnerInput, error) {
	in := why.OwnerInput{Now: r.now}
	if err := r.readObject(ctx, t, &in); err != nil {
		return in, err
	}
	if in.Deployment != nil {
		readInto(ctx, r, r.namespace, &in.ReplicaSets, &in.Unread, why.ResourceReplicaSets)
	}
	if in.JobSet != nil {
		readInto(ctx, r, r.namespace, &in.Jobs, &in.Unread, why.ResourceJobs)
	}
	readInto(ctx, r, r.namespace, &in.Pods, &in.Unread, why.ResourcePods)
	if in.Claim != nil {
		return in, nil
	}
	readInto(ctx, r, r.namespace, &in.Events, &in.Unread, why.ResourceEvents)
	readInto(ctx, r, r.namespace, &in.Quotas, &in.Unread, why.ResourceQuotas)
	var err error
	in.Workloads, err = r.workloads(ctx)
	r.note(&in.Unread, why.ResourceWorkloads, err)
	return in, nil
}

func (r *whyReader) readObject(ctx context.Context, t target, in *why.OwnerInput) (err error) {
	k, o := r.Kubernetes, metav1.GetOptions{}
	switch t.kind {
	case why.KindJob:
		in.Job, err = k.BatchV1().Jobs(r.namespace).Get(ctx, t.name, o)
	case why.KindDeployment:
		in.Deployment, err = k.AppsV1().Deployments(r.namespace).Get(ctx, t.name, o)
	case why.KindReplicaSet:
		in.ReplicaSet, err = k.AppsV1().ReplicaSets(r.namespace).Get(ctx, t.name, o)
	case why.KindStatefulSet:
		in.StatefulSet, err = k.AppsV1().StatefulSets(r.namespace).Get(ctx, t.name, o)
	case why.KindResourceClaim:
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
func (r *whyReader) workloads(ctx context.Context) ([]why.Workload, error) {
	for _, version := range why.KueueVersions {
		data, err := r.raw(ctx, "/apis/"+why.KueueGroup+"/"+version+"/namespaces/"+r.namespace+"/workloads")
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var all struct {
			Items []why.Workload `json:"items"`
		}
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("read Kueue's Workloads: %w", err)
		}
		return all.Items, nil
	}
	return []why.Workload{}, nil
}
