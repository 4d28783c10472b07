package main

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/defrag"
)

// read reads what decides where pods fit. An error means that plans could be wrong without what is missing.
func (r *defragRun) read(ctx context.Context) (*defrag.Input, error) {
	in := &defrag.Input{}
	in.Now = r.now
	core, all := r.kubernetes.CoreV1(), metav1.NamespaceAll
	var err error
	read := func(do func() error) {
		if err == nil {
			err = do()
		}
	}
	read(func() (err error) { in.Pods, err = r.listPods(ctx, all, ""); return })
	read(func() (err error) { in.Nodes, err = r.listNodes(ctx); return })
	read(func() (err error) { in.Classes, err = r.listClasses(ctx); return })
	read(func() (err error) { in.Rules, err = r.listRules(ctx); return })
	read(func() (err error) {
		in.Templates, err = list[resourceapi.ResourceClaimTemplate](ctx, "", r.kubernetes.ResourceV1().ResourceClaimTemplates(all).List)
		return
	})
	read(func() (err error) {
		in.Budgets, err = list[policyv1.PodDisruptionBudget](ctx, "", r.kubernetes.PolicyV1().PodDisruptionBudgets(all).List)
		return
	})
	read(func() (err error) { in.Slices, err = r.listSlices(ctx, ""); return })
	// After the slices: a claim that holds a device is then allocated to what is published.
	read(func() (err error) { in.Claims, err = r.listClaims(ctx, all); return })
	if err != nil {
		return nil, fmt.Errorf("plans need objects of the whole cluster, and %s; ask a cluster administrator to run this command", unreadable(err))
	}
	in.Namespaces, err = list[corev1.Namespace](ctx, "", core.Namespaces().List)
	r.addNote("pods that only the label of their namespace allows to move", err)
	in.Jobs, err = list[batchv1.Job](ctx, "", r.kubernetes.BatchV1().Jobs(all).List)
	r.addNote("pods of Jobs", err)
	in.Storage.Claims, err = list[corev1.PersistentVolumeClaim](ctx, "", core.PersistentVolumeClaims(all).List)
	r.addNote("pods with volumes", err)
	in.Storage.Volumes, err = list[corev1.PersistentVolume](ctx, "", core.PersistentVolumes().List)
	r.addNote("pods with bound volumes", err)
	in.Storage.Classes, err = list[storagev1.StorageClass](ctx, "", r.kubernetes.StorageV1().StorageClasses().List)
	r.addNote("pods with unbound volumes", err)
	return in, nil
}

// addNote says which pods the plans do not move because something could not be read.
func (r *defragRun) addNote(pods string, err error) {
	if err != nil {
		r.notes = append(r.notes, fmt.Sprintf("Plans do not move %s: %s.", pods, unreadable(err)))
	}
}
