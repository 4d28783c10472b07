package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/why"
)

// whyReader reads what explains a pod.
type whyReader struct {
	connection
	namespace, name string
	now             time.Time
}

// read reads the pod, which must exist, and as much of the rest as the user is allowed
// to. What is missing is said in a note.
func (r whyReader) read(ctx context.Context) (why.Input, error) {
	var in why.Input
	in.Now = r.now
	var err error
	if in.Pod, err = r.kubernetes.CoreV1().Pods(r.namespace).Get(ctx, r.name, metav1.GetOptions{}); err != nil {
		return in, fmt.Errorf("read pod %s/%s: %w", r.namespace, r.name, err)
	}
	if err := r.claims(ctx, &in); err != nil {
		return in, err
	}
	note := func(err error, consequence string) {
		if err != nil {
			in.Notes = append(in.Notes, fmt.Sprintf("%s (%s).", consequence, unreadable(err)))
		}
	}
	in.Slices, err = r.listSlices(ctx, "")
	note(err, "without the ResourceSlices nothing can be said about the GPUs")
	in.Classes, err = r.listClasses(ctx)
	note(err, "without the DeviceClasses it cannot be told which devices would do")
	in.Templates, err = list[resourceapi.ResourceClaimTemplate](ctx, "", r.kubernetes.ResourceV1().ResourceClaimTemplates(r.namespace).List)
	note(err, "it cannot be told whether the pod's claim templates exist")
	if len(why.MissingTemplates(in.Pod, in.Templates)) > 0 {
		in.Namespace, err = r.kubernetes.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
		if err != nil {
			in.Namespace = nil
		}
		note(err, "it cannot be told whether the namespace has the label "+v1alpha1.LabelTranslate)
		in.Translated, err = r.translated(ctx)
		note(err, "it cannot be told which projects the chart translates")
	}
	in.Rules, err = r.listRules(ctx)
	note(err, "taints that DeviceTaintRules set are not known, so what looks free may be tainted")
	in.Nodes, err = r.listNodes(ctx)
	note(err, "the nodes are not known, so their labels and taints are not compared with what the pod asks for")
	in.GPUNodes, err = r.listGPUNodes(ctx)
	note(err, "profiles and switches of nodes are not known")
	in.Events, err = r.events(ctx, r.namespace, "")
	note(err, "events are not known, so nobody's messages are quoted")
	in.NodeEvents, err = r.events(ctx, metav1.NamespaceAll, "involvedObject.kind=Node")
	note(err, "events of nodes are not known")
	return in, nil
}

// unreadable says why something could not be listed.
func unreadable(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsForbidden(err) && errors.As(err, &status) && status.Status().Details != nil {
		d := status.Status().Details
		return fmt.Sprintf("you may not list %s", schema.GroupResource{Group: d.Group, Resource: d.Kind})
	}
	return err.Error()
}

// claims reads the claims of all namespaces, or at least those of the pod's.
func (r whyReader) claims(ctx context.Context, in *why.Input) error {
	var err error
	in.Claims, err = r.listClaims(ctx, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) {
		in.Partial = true
		in.Notes = append(in.Notes, fmt.Sprintf("you may not list the ResourceClaims of all namespaces, so holders outside %s are not known, "+
			"and what looks free may be held.", r.namespace))
		in.Claims, err = r.listClaims(ctx, r.namespace)
	}
	if err != nil {
		return fmt.Errorf("list ResourceClaims: %w", err)
	}
	return nil
}

// translated are the values of the namespace label that the chart's policies are bound to.
func (r whyReader) translated(ctx context.Context) ([]string, error) {
	bindings, err := list[admissionv1.ValidatingAdmissionPolicyBinding](ctx, "", r.kubernetes.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List)
	if err != nil {
		return nil, err
	}
	projects := []string{}
	for _, b := range bindings {
		if m := b.Spec.MatchResources; m != nil && m.NamespaceSelector != nil && m.NamespaceSelector.MatchLabels[v1alpha1.LabelTranslate] != "" {
			projects = append(projects, m.NamespaceSelector.MatchLabels[v1alpha1.LabelTranslate])
		}
	}
	return projects, nil
}

func (r whyReader) events(ctx context.Context, namespace, selector string) ([]corev1.Event, error) {
	return list[corev1.Event](ctx, selector, r.kubernetes.CoreV1().Events(namespace).List)
}

// absent reads what may tell why the pod does not exist.
func (r whyReader) absent(ctx context.Context) why.NotThere {
	in := why.NotThere{Namespace: r.namespace, Name: r.name, Now: r.now}
	var err error
	if in.Events, err = r.events(ctx, r.namespace, ""); err != nil {
		in.Notes = append(in.Notes, fmt.Sprintf("events are not known, so refusals are not shown (%v).", err))
	}
	// Without the right to list pods there are no others to propose.
	in.Pods, _ = r.listPods(ctx, r.namespace, "")
	return in
}
