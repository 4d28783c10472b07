package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/demand"
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
	// requests is true after requests of other pods were read into common.
	requests bool
}

func newWhyReader(c connection, namespace string, now time.Time) *whyReader {
	return &whyReader{connection: c, namespace: namespace, now: now, raw: func(ctx context.Context, path string) ([]byte, error) {
		return c.Kubernetes.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	}}
}

// read reads a pod, which must exist, and as much of the rest as the user is allowed to.
func (r *whyReader) read(ctx context.Context, name string) (why.Input, error) {
	pod, err := r.Kubernetes.CoreV1().Pods(r.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return why.Input{}, fmt.Errorf("you may not get pods in the namespace %s, so nothing can be said about %s: %w", r.namespace, name, err)
	}
	if err != nil {
		return why.Input{}, fmt.Errorf("read pod %s/%s: %w", r.namespace, name, err)
	}
	return r.readFor(ctx, pod)
}

func (r *whyReader) readFor(ctx context.Context, pod *corev1.Pod) (why.Input, error) {
	if r.common == nil {
		in, err := r.readCommon(ctx)
		if err != nil {
			return in, err
		}
		r.common = &in
	}
	if !r.requests && cluster.RequestsOf(pod) != nil {
		var err error
		r.common.Requesting, err = read.List[corev1.Pod](ctx, r, metav1.NamespaceAll, read.Requests.Only)
		r.note(&r.common.Unread, why.ResourceRequests, err)
		r.requests = true
	}
	in := *r.common
	in.Unread = slices.Clone(in.Unread)
	in.Pod = pod
	if why.DependsOnTranslation(pod, in.Templates) {
		r.readTranslation(ctx, &in)
	}
	if len(demand.Volumes(pod, demand.Storage{})) > 0 {
		r.readStorage(ctx, &in)
	}
	if why.WaitsForClaims(pod) {
		readInto(ctx, r, r.namespace, &in.Quotas, &in.Unread, why.ResourceQuotas)
	}
	if why.WaitsForKueue(pod) {
		var err error
		in.Workloads, err = r.workloads(ctx)
		r.note(&in.Unread, why.ResourceWorkloads, err)
	}
	return in, nil
}

// readInto reads all objects of a namespace, or of the cluster, into all, and notes what cannot be
// read.
func readInto[T any, P read.Object[T]](ctx context.Context, r *whyReader, namespace string, all *[]T, missing *[]text.Unread, what why.Resource) {
	var err error
	*all, err = read.All[T, P](ctx, r, namespace)
	r.note(missing, what, err)
}

func (r *whyReader) note(missing *[]text.Unread, what why.Resource, err error) {
	if err != nil {
		*missing = append(*missing, read.Failed(why.NotRead(what, r.namespace, ""), err))
	}
}

// readCommon reads what is the same for all pods of the namespace.
func (r *whyReader) readCommon(ctx context.Context) (why.Input, error) {
	var in why.Input
	in.Now = r.now
	if err := r.claims(ctx, &in); err != nil {
		return in, err
	}
	readInto(ctx, r, "", &in.Slices, &in.Unread, why.ResourceSlices)
	readInto(ctx, r, "", &in.Classes, &in.Unread, why.ResourceClasses)
	readInto(ctx, r, r.namespace, &in.Templates, &in.Unread, why.ResourceTemplates)
	var err error
	in.Rules, err = read.TaintRules(ctx, r)
	r.note(&in.Unread, why.ResourceRules, err)
	readInto(ctx, r, "", &in.Nodes, &in.Unread, why.ResourceNodes)
	if in.GPUNodes, err = read.All[v1beta1.GPUNode](ctx, r, ""); !apierrors.IsNotFound(err) {
		r.note(&in.Unread, why.ResourceGPUNodes, err)
	}
	readInto(ctx, r, r.namespace, &in.Events, &in.Unread, why.ResourceEvents)
	in.NodeEvents, err = read.List[corev1.Event](ctx, r, metav1.NamespaceAll, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node"})
	r.note(&in.Unread, why.ResourceNodeEvents, err)
	return in, nil
}

// claims reads the claims of all namespaces, or at least those of the pod's.
func (r *whyReader) claims(ctx context.Context, in *why.Input) error {
	var err error
	in.Claims, err = read.All[resourceapi.ResourceClaim](ctx, r, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) {
		in.Partial = true
		r.note(&in.Unread, why.ResourceClaims, err)
		if in.Claims, err = read.All[resourceapi.ResourceClaim](ctx, r, r.namespace); apierrors.IsForbidden(err) {
			r.note(&in.Unread, why.ResourceOwnClaims, err)
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("list ResourceClaims: %w", err)
	}
	return nil
}

// readTranslation reads what decides whether the controller creates templates.
func (r *whyReader) readTranslation(ctx context.Context, in *why.Input) {
	namespace, err := r.Kubernetes.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
	if err == nil {
		in.Namespace = namespace
	}
	r.note(&in.Unread, why.ResourceNamespaces, err)
	in.Translated, err = r.translated(ctx)
	r.note(&in.Unread, why.ResourcePolicies, err)
}

// readStorage reads the objects behind the pod's volumes, of PersistentVolumes those only.
func (r *whyReader) readStorage(ctx context.Context, in *why.Input) {
	readInto(ctx, r, r.namespace, &in.Storage.Claims, &in.Unread, why.ResourceVolumeClaims)
	readInto(ctx, r, "", &in.Storage.Classes, &in.Unread, why.ResourceStorageClasses)
	for _, v := range demand.Volumes(in.Pod, in.Storage) {
		if v.PV == "" {
			continue
		}
		volume, err := r.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, v.PV, metav1.GetOptions{})
		if err != nil {
			r.note(&in.Unread, why.ResourceVolumes, err)
			break
		}
		in.Storage.Volumes = append(in.Storage.Volumes, *volume)
	}
}

// translated returns the values of the namespace label that the chart's policies are bound to.
func (r *whyReader) translated(ctx context.Context) ([]string, error) {
	bindings, err := read.All[admissionv1.ValidatingAdmissionPolicyBinding](ctx, r, "")
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

// absent reads what may explain why a pod does not exist.
func (r *whyReader) absent(ctx context.Context, name string) why.AbsentInput {
	in := why.AbsentInput{Namespace: r.namespace, Name: name, Now: r.now}
	readInto(ctx, r, r.namespace, &in.Events, &in.Unread, why.ResourceEvents)
	// Without the right to list pods there are no others to propose.
	in.Pods, _ = read.All[corev1.Pod](ctx, r, r.namespace)
	in.NoNamespace = len(in.Pods) == 0 && r.noNamespace(ctx)
	return in
}

// noNamespace reports whether the namespace is known not to exist.
func (r *whyReader) noNamespace(ctx context.Context) bool {
	_, err := r.Kubernetes.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}
