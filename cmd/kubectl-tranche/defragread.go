package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/text"
)

// read reads what decides where pods fit. An error means that plans could be wrong without what is missing.
func (r *defragRun) read(ctx context.Context) (*defrag.Input, error) {
	in := &defrag.Input{}
	in.Now = r.now()
	var err error
	readRequired(ctx, r, &in.Pods, &err)
	readRequired(ctx, r, &in.Nodes, &err)
	readRequired(ctx, r, &in.Classes, &err)
	readRequired(ctx, r, &in.Templates, &err)
	readRequired(ctx, r, &in.Budgets, &err)
	readRequired(ctx, r, &in.Slices, &err)
	// After the slices: a claim that holds a device is then allocated to what is published.
	readRequired(ctx, r, &in.Claims, &err)
	if err == nil {
		in.Rules, err = read.TaintRules(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("plans need objects of the whole cluster, and %s; ask a cluster administrator to run this command", read.Reason("list", err))
	}
	readOptional(ctx, r, &in.Namespaces, "namespaces", "pods that only the label of their namespace allows to move")
	readOptional(ctx, r, &in.Jobs, "jobs.batch", "pods of Jobs")
	readOptional(ctx, r, &in.Storage.Claims, "persistentvolumeclaims", "pods with volumes")
	readOptional(ctx, r, &in.Storage.Volumes, "persistentvolumes", "pods with bound volumes")
	readOptional(ctx, r, &in.Storage.Classes, "storageclasses.storage.k8s.io", "pods with unbound volumes")
	return in, nil
}

// readRequired reads the objects of all namespaces, unless there was an error before.
func readRequired[T any, P read.Object[T]](ctx context.Context, r *defragRun, all *[]T, err *error) {
	if *err == nil {
		*all, *err = read.All[T, P](ctx, r, metav1.NamespaceAll)
	}
}

// readOptional reads the objects of all namespaces. If it cannot, it says which pods the plans do not move.
func readOptional[T any, P read.Object[T]](ctx context.Context, r *defragRun, all *[]T, resource, pods string) {
	var err error
	if *all, err = read.All[T, P](ctx, r, metav1.NamespaceAll); err != nil {
		r.unread = append(r.unread, read.Failed(text.Unread{Verb: "list", Resource: resource, Consequence: "plans do not move " + pods}, err))
	}
}
