package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/why"
)

// whyReader reads what explains a pod.
type whyReader struct {
	client          kubernetes.Interface
	ours            client.Interface
	namespace, name string
	now             time.Time
}

// lister is the List method of a typed client.
type lister[L runtime.Object] func(context.Context, metav1.ListOptions) (L, error)

// everything lists all objects of a kind, in pages. None is an empty list; nil is
// one that could not be read.
func everything[T any, L runtime.Object](ctx context.Context, selector string, list lister[L], items func(L) ([]T, string)) ([]T, error) {
	all, err := pages(selector, func(o metav1.ListOptions) ([]T, string, error) {
		l, err := list(ctx, o)
		if err != nil {
			return nil, "", err
		}
		found, next := items(l)
		return found, next, nil
	})
	if err == nil && all == nil {
		all = []T{}
	}
	return all, err
}

// read reads the pod, which must be there, and as much of the rest as the person
// may see. Every part that is missing is said in a note.
func (r whyReader) read(ctx context.Context) (why.Input, error) {
	in := why.Input{Now: r.now}
	var err error
	if in.Pod, err = r.client.CoreV1().Pods(r.namespace).Get(ctx, r.name, metav1.GetOptions{}); err != nil {
		return in, fmt.Errorf("read pod %s/%s: %w", r.namespace, r.name, err)
	}
	if err := r.claims(ctx, &in); err != nil {
		return in, err
	}
	resources := r.client.ResourceV1()
	note := func(err error, consequence string) {
		var status apierrors.APIStatus
		switch {
		case err == nil:
		case apierrors.IsForbidden(err) && errors.As(err, &status) && status.Status().Details != nil:
			d := status.Status().Details
			in.Notes = append(in.Notes, fmt.Sprintf("%s (you may not list %s).", consequence, schema.GroupResource{Group: d.Group, Resource: d.Kind}))
		default:
			in.Notes = append(in.Notes, fmt.Sprintf("%s (%v).", consequence, err))
		}
	}
	in.Slices, err = everything(ctx, "", resources.ResourceSlices().List, func(l *resourceapi.ResourceSliceList) ([]resourceapi.ResourceSlice, string) {
		return l.Items, l.Continue
	})
	note(err, "without the ResourceSlices nothing can be said about the cards")
	in.Classes, err = everything(ctx, "", resources.DeviceClasses().List, func(l *resourceapi.DeviceClassList) ([]resourceapi.DeviceClass, string) {
		return l.Items, l.Continue
	})
	note(err, "without the DeviceClasses it cannot be told which devices would do")
	in.System = why.SystemOf(in.Classes)
	in.Templates, err = everything(ctx, "", resources.ResourceClaimTemplates(r.namespace).List, func(l *resourceapi.ResourceClaimTemplateList) ([]resourceapi.ResourceClaimTemplate, string) {
		return l.Items, l.Continue
	})
	note(err, "it cannot be told whether the pod's claim templates exist")
	in.Rules, err = listRules(ctx, r.client)
	if !apierrors.IsNotFound(err) { // a cluster that does not serve them has none
		note(err, "taints that DeviceTaintRules set are not known, so what looks free may be tainted")
	}
	in.Nodes, err = everything(ctx, "", r.client.CoreV1().Nodes().List, func(l *corev1.NodeList) ([]corev1.Node, string) {
		return l.Items, l.Continue
	})
	note(err, "the nodes are not known, so their labels and taints are not compared with what the pod asks for")
	in.GPUNodes, err = listGPUNodes(ctx, r.ours)
	note(err, "profiles and switches of nodes are not known")
	in.Events, err = r.events(ctx, r.namespace, "")
	note(err, "events are not known, so nobody's messages are quoted")
	in.NodeEvents, err = r.events(ctx, metav1.NamespaceAll, "involvedObject.kind=Node")
	note(err, "events of nodes are not known")
	return in, nil
}

// claims reads the claims of all namespaces, or of the pod's own: those it must
// have to say anything.
func (r whyReader) claims(ctx context.Context, in *why.Input) error {
	list := func(namespace string) (err error) {
		in.Claims, err = everything(ctx, "", r.client.ResourceV1().ResourceClaims(namespace).List, func(l *resourceapi.ResourceClaimList) ([]resourceapi.ResourceClaim, string) {
			return l.Items, l.Continue
		})
		return err
	}
	err := list(metav1.NamespaceAll)
	if apierrors.IsForbidden(err) {
		in.Partial = true
		in.Notes = append(in.Notes, fmt.Sprintf("you may not list the ResourceClaims of all namespaces, so holders outside %s are not known, "+
			"and what looks free may be held.", r.namespace))
		err = list(r.namespace)
	}
	if err != nil {
		return fmt.Errorf("list ResourceClaims: %w", err)
	}
	return nil
}

func (r whyReader) events(ctx context.Context, namespace, selector string) ([]corev1.Event, error) {
	return everything(ctx, selector, r.client.CoreV1().Events(namespace).List, func(l *corev1.EventList) ([]corev1.Event, string) {
		return l.Items, l.Continue
	})
}

// absent reads what may tell why there is no such pod.
func (r whyReader) absent(ctx context.Context) why.NotThere {
	in := why.NotThere{Namespace: r.namespace, Name: r.name, Now: r.now}
	var err error
	if in.Events, err = r.events(ctx, r.namespace, ""); err != nil {
		in.Notes = append(in.Notes, fmt.Sprintf("events are not known, so refusals are not shown (%v).", err))
	}
	// Without the right to list pods there are no others to propose.
	in.Pods, _ = everything(ctx, "", r.client.CoreV1().Pods(r.namespace).List, func(l *corev1.PodList) ([]corev1.Pod, string) {
		return l.Items, l.Continue
	})
	return in
}
