package waiting

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// reconcilePod finds out what a pod asks for, when it has waited for long enough.
func (r *Reconciler) reconcilePod(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	var pod corev1.Pod
	if err := r.Pods.Get(ctx, key, &pod); err != nil {
		r.memory.forget(key)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !waits(&pod) {
		r.memory.forget(key)
		return reconcile.Result{}, nil
	}
	since := r.memory.see(key, pod.UID, r.Clock.Now())
	if left := since.Add(r.After).Sub(r.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return reconcile.Result{}, r.look(ctx, key, &pod)
}

// look finds out what a pod asks for, and has the nodes judged if nobody has asked for that yet.
func (r *Reconciler) look(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) error {
	in, claims, err := r.input(ctx, pod)
	if err != nil {
		return err
	}
	r.memory.uses(key, claims)
	wish, answer, problem, err := why.WishOf(in)
	switch {
	case err != nil:
		return err
	case answer != why.None && !r.servedByPlugin(ctx, &in):
		r.memory.decided(key, answer, text.Capital(problem)+" For details: kubectl tranche why "+pod.Name)
		return nil
	case wish == nil:
		r.memory.decided(key, why.None, "")
		return nil
	}
	if _, may := r.memory.join(key, wish.Key); !may {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.memory.forReading(key))
	defer cancel()
	ours, err := wish.Narrow(limited, cluster.Objects{Classes: in.Classes, Compiled: r.compiled})
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		r.memory.addParked(key, wish, r.Clock.Now())
		return nil
	case !ours || r.servedByPlugin(ctx, &in):
		r.memory.decided(key, why.None, "")
		return nil
	}
	r.memory.add(key, wish)
	return r.judgeAll(ctx)
}

// input reads what a pod asks for: its claims, or the templates of those that it does not have.
func (r *Reconciler) input(ctx context.Context, pod *corev1.Pod) (in why.Input, names []types.NamespacedName, err error) {
	in.Pod, in.Templates = pod, []resourceapi.ResourceClaimTemplate{}
	in.Claims = []resourceapi.ResourceClaim{}
	if in.Classes, err = r.classes(ctx); err != nil {
		return in, nil, err
	}
	for _, c := range pod.Spec.ResourceClaims {
		name := claimOf(pod, c)
		if name == "" {
			err = r.addTemplate(ctx, &in, c)
		} else {
			names = append(names, types.NamespacedName{Namespace: pod.Namespace, Name: name})
			err = r.addClaim(ctx, &in, names[len(names)-1])
		}
		if err != nil {
			return in, nil, err
		}
	}
	return in, names, nil
}

// claimOf is the name of a claim of a pod, empty if it has not been created from its template.
func claimOf(pod *corev1.Pod, c corev1.PodResourceClaim) string {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.Name == c.Name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName
		}
	}
	return ""
}

func (r *Reconciler) addClaim(ctx context.Context, in *why.Input, name types.NamespacedName) error {
	var claim resourceapi.ResourceClaim
	if err := r.get(ctx, name, &claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	in.Claims = append(in.Claims, claim)
	return nil
}

func (r *Reconciler) addTemplate(ctx context.Context, in *why.Input, c corev1.PodResourceClaim) error {
	if c.ResourceClaimTemplateName == nil {
		return nil
	}
	var template resourceapi.ResourceClaimTemplate
	err := r.get(ctx, types.NamespacedName{Namespace: in.Pod.Namespace, Name: *c.ResourceClaimTemplateName}, &template)
	if apierrors.IsNotFound(err) {
		return nil
	}
	in.Templates = append(in.Templates, template)
	return err
}

// get reads an object from the API server, not faster than allowed.
func (r *Reconciler) get(ctx context.Context, name types.NamespacedName, o client.Object) error {
	if err := r.limit(ctx); err != nil {
		return err
	}
	if err := r.Reader.Get(ctx, name, o); err != nil {
		return fmt.Errorf("read %T %s: %w", o, name, err)
	}
	return nil
}

func (r *Reconciler) limit(ctx context.Context) error {
	if err := r.Limiter.Wait(ctx); err != nil {
		return fmt.Errorf("wait for the next call: %w", err)
	}
	r.metrics.calls.Inc()
	return nil
}

// servedByPlugin tells whether a device plugin serves an extended resource of the pod on some node. Then
// devices of claims are not all that the pod can have.
func (r *Reconciler) servedByPlugin(ctx context.Context, in *why.Input) bool {
	extended := demand.Of(demand.Input{Pod: in.Pod, Claims: in.Claims, Templates: in.Templates, Classes: in.Classes}).Extended
	if len(extended) == 0 {
		return false
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range nodes.Items {
		for name := range extended {
			if n := nodes.Items[i].Status.Allocatable[name]; !n.IsZero() {
				return true
			}
		}
	}
	return false
}

// waits tells whether a pod waits for a node, and may do so because of claims.
func waits(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || pod.Status.Phase != corev1.PodPending {
		return false
	}
	return wantsDevices(pod)
}

// wantsDevices tells whether a pod has claims or extended resources.
func wantsDevices(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	for _, c := range demand.Containers(pod) {
		for name := range c.Resources.Requests {
			if strings.Contains(string(name), "/") {
				return true
			}
		}
	}
	return false
}

// trimPod keeps of a pod what decides on which nodes it fits.
func trimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{TypeMeta: p.TypeMeta}
	out.Namespace, out.Name, out.UID, out.ResourceVersion, out.DeletionTimestamp = p.Namespace, p.Name, p.UID, p.ResourceVersion, p.DeletionTimestamp
	out.Spec.NodeName, out.Spec.SchedulingGates, out.Status.Phase = p.Spec.NodeName, p.Spec.SchedulingGates, p.Status.Phase
	if !wantsDevices(p) {
		return out, nil
	}
	out.Spec.NodeSelector, out.Spec.Tolerations, out.Spec.ResourceClaims = p.Spec.NodeSelector, p.Spec.Tolerations, p.Spec.ResourceClaims
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		out.Spec.Affinity = &corev1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	out.Spec.InitContainers, out.Spec.Containers = requests(p.Spec.InitContainers), requests(p.Spec.Containers)
	out.Status.ResourceClaimStatuses, out.Status.ExtendedResourceClaimStatus = p.Status.ResourceClaimStatuses, p.Status.ExtendedResourceClaimStatus
	return out, nil
}

// requests keeps the extended resources of containers.
func requests(containers []corev1.Container) (out []corev1.Container) {
	for _, c := range containers {
		kept := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		for name, n := range c.Resources.Requests {
			if strings.Contains(string(name), "/") {
				if kept.Resources.Requests == nil {
					kept.Resources.Requests = corev1.ResourceList{}
				}
				kept.Resources.Requests[name] = n
			}
		}
		out = append(out, kept)
	}
	return out
}

const callTimeout = 5 * time.Minute
