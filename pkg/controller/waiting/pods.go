package waiting

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/text"
	poddemand "github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

type pod struct {
	uid types.UID
	// since is when it was first seen to wait.
	since time.Time
	// version and hash are those of the pod as it was when its demand was found, empty before that.
	version string
	hash    uint64
	claims  []types.NamespacedName
	// demand is what it asks for, nil if no node decides about it; reason is then why it waits, and note the
	// sentence.
	demand *demand
	reason string
	note   string
	// leftOut: it gets no event, because pods have too many different demands.
	leftOut bool
	// told is the reason of its last event.
	told  string
	event written
}

// updatePods finds the demands of pods that have waited for long enough, again when they or their claims
// change.
func (e *Explainer) updatePods(ctx context.Context, changed changeSet) error {
	var all corev1.PodList
	if err := e.Pods.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods that wait: %w", err)
	}
	there := make(map[types.NamespacedName]*corev1.Pod, len(all.Items))
	for i := range all.Items {
		if o := &all.Items[i]; waits(o) {
			there[client.ObjectKeyFromObject(o)] = o
		}
	}
	for key, p := range e.pods {
		if o := there[key]; o == nil || o.UID != p.uid {
			e.leave(key, p)
			delete(e.pods, key)
		}
	}
	mayAdd := map[string]bool{}
	var due []types.NamespacedName
	for key, o := range there {
		p := e.pods[key]
		if p == nil {
			p = &pod{uid: o.UID, since: e.Clock.Now()}
			e.pods[key] = p
		}
		if changed.allPods || slices.ContainsFunc(p.claims, func(c types.NamespacedName) bool { return changed.claims[c] }) {
			p.version, p.hash = "", 0
		}
		if _, known := mayAdd[key.Namespace]; !known {
			mayAdd[key.Namespace] = e.mayAdd(key.Namespace)
		}
		if e.Clock.Since(p.since) >= e.After && (p.isStale(o) || p.leftOut && mayAdd[key.Namespace]) {
			due = append(due, key)
		}
	}
	for _, key := range inTurns(due) {
		if p := e.pods[key]; p.leftOut && !p.isStale(there[key]) && !e.mayAdd(key.Namespace) {
			continue
		}
		if err := e.updatePod(ctx, key, there[key]); err != nil {
			return fmt.Errorf("read what pod %s asks for: %w", key, err)
		}
	}
	return nil
}

// isStale reports whether the demand of a pod is to be found, because it has changed since that was done.
func (p *pod) isStale(o *corev1.Pod) bool {
	if p.version == "" || p.version != o.ResourceVersion && p.hash != hashOf(o) {
		return true
	}
	p.version = o.ResourceVersion
	return false
}

// hashOf returns the hash of what the cache keeps of a pod.
func hashOf(o *corev1.Pod) uint64 {
	hash := fnv.New64a()
	_ = json.NewEncoder(hash).Encode([]any{o.Spec, o.Status})
	return hash.Sum64()
}

// updatePod finds the demand of a pod.
func (e *Explainer) updatePod(ctx context.Context, key types.NamespacedName, o *corev1.Pod) error {
	p := e.pods[key]
	in, claims, err := e.input(ctx, o)
	if err != nil {
		return err
	}
	asked := poddemand.Of(in)
	p.claims, p.version, p.hash, p.reason, p.note = claims, o.ResourceVersion, hashOf(o), "", ""
	explain := func(reason string, problems []string) {
		p.reason, p.note = reason, text.Capital(text.Clause(problems))+" "+fit.Details(key)
		e.leave(key, p)
	}
	invalid := asked.Invalid(in.Classes)
	switch {
	case e.servedByPlugin(ctx, asked):
		e.leave(key, p)
	case len(asked.Missing) > 0:
		explain(names.EventClaimNotCreated, asked.Missing)
	case len(invalid) > 0:
		explain(names.EventRequestInvalid, invalid)
	case len(asked.Unallocated) == 0:
		e.leave(key, p)
	default:
		id, err := asked.Key(in.Classes)
		if err != nil {
			return err
		}
		e.join(key, p, asked, id)
	}
	return nil
}

// input reads what a pod asks for: its claims, or the templates of those that it does not have.
func (e *Explainer) input(ctx context.Context, pod *corev1.Pod) (in poddemand.Input, claims []types.NamespacedName, err error) {
	in = poddemand.Input{Pod: pod.DeepCopy(), Claims: []resourceapi.ResourceClaim{}, Templates: []resourceapi.ResourceClaimTemplate{}}
	if in.Classes, err = e.classes(ctx); err != nil {
		return in, nil, err
	}
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		name, _, noClaim := resourceclaim.Name(pod, c)
		var found bool
		switch {
		case noClaim == nil && name != nil:
			var claim resourceapi.ResourceClaim
			if found, err = e.get(ctx, pod.Namespace, *name, &claim); found {
				in.Claims = append(in.Claims, claim)
			}
			claims = append(claims, types.NamespacedName{Namespace: pod.Namespace, Name: *name})
		case noClaim != nil && c.ResourceClaimTemplateName != nil:
			var template resourceapi.ResourceClaimTemplate
			if found, err = e.get(ctx, pod.Namespace, *c.ResourceClaimTemplateName, &template); found {
				in.Templates = append(in.Templates, template)
			}
		}
		if err != nil {
			return in, nil, err
		}
	}
	return in, claims, nil
}

// get reads an object from the API server, if it exists.
func (e *Explainer) get(ctx context.Context, namespace, name string, o client.Object) (found bool, err error) {
	ctx, cancel, err := e.call(ctx)
	defer cancel()
	if err != nil {
		return false, err
	}
	if err := e.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("read %T %s/%s: %w", o, namespace, name, err))
	}
	return true, nil
}

// servedByPlugin reports whether a device plugin serves an extended resource of the pod on some node. Then
// devices of claims are not all that the pod can have.
func (e *Explainer) servedByPlugin(ctx context.Context, d *poddemand.Demand) bool {
	if len(d.Extended) == 0 {
		return false
	}
	var nodes corev1.NodeList
	if err := e.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range nodes.Items {
		for name := range d.Extended {
			if n := nodes.Items[i].Status.Allocatable[name]; !n.IsZero() {
				return true
			}
		}
	}
	return false
}

// waits reports whether a pod waits for a node, and may do so because of claims.
func waits(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || pod.Status.Phase != corev1.PodPending {
		return false
	}
	return wantsDevices(pod)
}

// wantsDevices reports whether a pod has claims or extended resources.
func wantsDevices(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	for _, c := range poddemand.Containers(pod) {
		for name := range c.Resources.Requests {
			if strings.Contains(string(name), "/") {
				return true
			}
		}
	}
	return false
}
