package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// whyReader reads what explains pods of a namespace. What it has read it keeps for the next pod.
type whyReader struct {
	connection
	namespace string
	now       time.Time
	// raw reads a path of the API server: of kinds that this program has no client for.
	raw func(ctx context.Context, path string) ([]byte, error)
	// common is what is the same for all pods, nil before it was read.
	common *why.Input
}

func newWhyReader(c connection, namespace string, now time.Time) *whyReader {
	return &whyReader{connection: c, namespace: namespace, now: now, raw: func(ctx context.Context, path string) ([]byte, error) {
		return c.kubernetes.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	}}
}

// read reads a pod, which must exist, and as much of the rest as the user is allowed to.
func (r *whyReader) read(ctx context.Context, name string) (why.Input, error) {
	pod, err := r.kubernetes.CoreV1().Pods(r.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return why.Input{}, fmt.Errorf("you may not get pods in the namespace %s, so nothing can be said about %s; ask for the role view or tranche-user-namespace: %w", r.namespace, name, err)
	}
	if err != nil {
		return why.Input{}, fmt.Errorf("read pod %s/%s: %w", r.namespace, name, err)
	}
	return r.readFor(ctx, pod)
}

// readFor reads what explains a pod.
func (r *whyReader) readFor(ctx context.Context, pod *corev1.Pod) (why.Input, error) {
	if r.common == nil {
		in, err := r.readCommon(ctx)
		if err != nil {
			return in, err
		}
		r.common = &in
	}
	in := *r.common
	in.Unread = append([]why.Unread{}, in.Unread...)
	in.Pod = pod
	n := notes{&in.Unread}
	if len(why.MissingTemplates(pod, in.Templates)) > 0 {
		r.readTranslation(ctx, &in, n)
	}
	if len(fit.Volumes(pod, fit.Storage{})) > 0 {
		r.readStorage(ctx, &in, n)
	}
	var err error
	if why.WaitsForClaims(pod) {
		in.Quotas, err = r.quotas(ctx)
		n.add(why.ResourceQuotas, err)
	}
	if why.WaitsForKueue(pod) {
		in.Workloads, err = r.workloads(ctx)
		n.add(why.ResourceWorkloads, err)
	}
	return in, nil
}

// notes collect what could not be read.
type notes struct{ all *[]why.Unread }

func (n notes) add(what why.Resource, err error) {
	if err != nil {
		*n.all = append(*n.all, why.NotRead(what, unreadable(err)))
	}
}

// readCommon reads what is the same for all pods of the namespace.
func (r *whyReader) readCommon(ctx context.Context) (why.Input, error) {
	var in why.Input
	in.Now = r.now
	n := notes{&in.Unread}
	if err := r.claims(ctx, &in, n); err != nil {
		return in, err
	}
	var err error
	in.Slices, err = r.listSlices(ctx, "")
	n.add(why.ResourceSlices, err)
	in.Classes, err = r.listClasses(ctx)
	n.add(why.ResourceClasses, err)
	in.Templates, err = list[resourceapi.ResourceClaimTemplate](ctx, "", r.kubernetes.ResourceV1().ResourceClaimTemplates(r.namespace).List)
	n.add(why.ResourceTemplates, err)
	in.Rules, err = r.listRules(ctx)
	n.add(why.ResourceRules, err)
	in.Nodes, err = r.listNodes(ctx)
	n.add(why.ResourceNodes, err)
	in.GPUNodes, err = list[v1alpha1.GPUNode](ctx, "", r.ours.GPUNodes().List)
	if !apierrors.IsNotFound(err) {
		n.add(why.ResourceGPUNodes, err)
	}
	in.Events, err = r.events(ctx, r.namespace, "")
	n.add(why.ResourceEvents, err)
	in.NodeEvents, err = r.events(ctx, metav1.NamespaceAll, "involvedObject.kind=Node")
	n.add(why.ResourceNodeEvents, err)
	return in, nil
}

// unreadable says why something could not be read.
func unreadable(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsForbidden(err) && errors.As(err, &status) && status.Status().Details != nil {
		d := status.Status().Details
		return fmt.Sprintf("you may not list %s", schema.GroupResource{Group: d.Group, Resource: d.Kind})
	}
	return err.Error()
}

// claims reads the claims of all namespaces, or at least those of the pod's.
func (r *whyReader) claims(ctx context.Context, in *why.Input, n notes) error {
	var err error
	in.Claims, err = r.listClaims(ctx, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) {
		in.Partial = true
		n.add(why.ResourceClaims, err)
		if in.Claims, err = r.listClaims(ctx, r.namespace); apierrors.IsForbidden(err) {
			n.add(why.ResourceOwnClaims, err)
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("list ResourceClaims: %w", err)
	}
	return nil
}

// readTranslation reads what decides whether the controller creates templates.
func (r *whyReader) readTranslation(ctx context.Context, in *why.Input, n notes) {
	namespace, err := r.kubernetes.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
	if err == nil {
		in.Namespace = namespace
	}
	n.add(why.ResourceNamespaces, err)
	in.Translated, err = r.translated(ctx)
	n.add(why.ResourcePolicies, err)
}

// readStorage reads the objects behind the pod's volumes, of PersistentVolumes those only.
func (r *whyReader) readStorage(ctx context.Context, in *why.Input, n notes) {
	var err error
	in.Storage.Claims, err = list[corev1.PersistentVolumeClaim](ctx, "", r.kubernetes.CoreV1().PersistentVolumeClaims(r.namespace).List)
	n.add(why.ResourceVolumeClaims, err)
	in.Storage.Classes, err = list[storagev1.StorageClass](ctx, "", r.kubernetes.StorageV1().StorageClasses().List)
	n.add(why.ResourceStorageClasses, err)
	for _, v := range fit.Volumes(in.Pod, in.Storage) {
		if v.PV == "" {
			continue
		}
		volume, err := r.kubernetes.CoreV1().PersistentVolumes().Get(ctx, v.PV, metav1.GetOptions{})
		if err != nil {
			n.add(why.ResourceVolumes, err)
			break
		}
		in.Storage.Volumes = append(in.Storage.Volumes, *volume)
	}
}

// translated are the values of the namespace label that the chart's policies are bound to.
func (r *whyReader) translated(ctx context.Context) ([]string, error) {
	bindings, err := list[admissionv1.ValidatingAdmissionPolicyBinding](ctx, "", r.kubernetes.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List)
	if err != nil {
		return nil, err
	}
	projects := []string{}
	for _, b := range bindings {
		if m := b.Spec.MatchResources; m != nil && m.NamespaceSelector != nil && m.NamespaceSelector.MatchLabels[names.LabelTranslate] != "" {
			projects = append(projects, m.NamespaceSelector.MatchLabels[names.LabelTranslate])
		}
	}
	return projects, nil
}

func (r *whyReader) events(ctx context.Context, namespace, selector string) ([]corev1.Event, error) {
	return list[corev1.Event](ctx, selector, r.kubernetes.CoreV1().Events(namespace).List)
}

func (r *whyReader) quotas(ctx context.Context) ([]corev1.ResourceQuota, error) {
	return list[corev1.ResourceQuota](ctx, "", r.kubernetes.CoreV1().ResourceQuotas(r.namespace).List)
}

// absent reads what may tell why a pod does not exist.
func (r *whyReader) absent(ctx context.Context, name string) why.NotThere {
	in := why.NotThere{Namespace: r.namespace, Name: name, Now: r.now}
	var err error
	if in.Events, err = r.events(ctx, r.namespace, ""); err != nil {
		in.Notes = append(in.Notes, fmt.Sprintf("events are not known, so refusals are not shown (%s).", unreadable(err)))
	}
	// Without the right to list pods there are no others to propose.
	in.Pods, _ = r.listPods(ctx, r.namespace, "")
	return in
}
