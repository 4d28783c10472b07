package claimtemplates

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// Projects are the values of the namespace label tranche.dev/translate.
var Projects = []string{names.TranslateKAI, names.TranslateHAMi, names.TranslateNos}

// CacheObjects keep in memory only what is needed of pods and namespaces, and only templates
// of the controller.
func CacheObjects() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:                        {Transform: trimPod},
		&corev1.Namespace{}:                  {Transform: trimNamespace},
		&resourceapi.ResourceClaimTemplate{}: {Label: labels.SelectorFromSet(labels.Set{names.LabelCreatedFrom: names.CreatedFromAmount})},
	}
}

// Setup adds the controller to a manager, for the given projects.
func Setup(mgr manager.Manager, projects []string) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(names.ControllerName),
		Clock: clock.RealClock{}, Projects: projects,
	}
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetNamespace()}}}
	})
	return builder.ControllerManagedBy(mgr).Named("claimtemplates").
		For(&corev1.Namespace{}).
		Watches(&corev1.Pod{}, ofNamespace, builder.WithPredicates(predicate.NewPredicateFuncs(concerns))).
		Watches(&resourceapi.ResourceClaimTemplate{}, ofNamespace).
		Complete(r)
}

// concerns reports whether a pod names a template that could be ours, or has an annotation that
// nobody reads.
func concerns(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && (len(pod.Spec.ResourceClaims) > 0 || len(pod.Annotations) > 0)
}

// trimPod keeps what the controller uses of a pod. Of claims that cannot be ours, one stays: a
// pod that has a claim is not warned about.
func trimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{TypeMeta: p.TypeMeta}
	out.Namespace, out.Name, out.UID, out.ResourceVersion, out.DeletionTimestamp = p.Namespace, p.Name, p.UID, p.ResourceVersion, p.DeletionTimestamp
	out.Spec.SchedulerName, out.Status.Phase = p.Spec.SchedulerName, p.Status.Phase
	if key := claimtemplate.AsksFor(p.Annotations); key != "" {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, "")
	}
	for _, c := range p.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName != nil && strings.HasPrefix(*c.ResourceClaimTemplateName, claimtemplate.Prefix) {
			out.Spec.ResourceClaims = append(out.Spec.ResourceClaims, c)
		}
	}
	if len(out.Spec.ResourceClaims) == 0 && (len(p.Spec.ResourceClaims) > 0 || hasGPU(p)) {
		out.Spec.ResourceClaims = []corev1.PodResourceClaim{{}}
	}
	return out, nil
}

// hasGPU reports whether a container has an extended resource: a GPU, of whoever's.
func hasGPU(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool {
		for name := range c.Resources.Limits {
			if strings.HasPrefix(string(name), "nvidia.com/") || strings.HasPrefix(string(name), "amd.com/") {
				return true
			}
		}
		return false
	})
}

func trimNamespace(o any) (any, error) {
	n, ok := o.(*corev1.Namespace)
	if !ok {
		return o, nil
	}
	out := &corev1.Namespace{TypeMeta: n.TypeMeta}
	out.Name, out.UID, out.ResourceVersion, out.DeletionTimestamp = n.Name, n.UID, n.ResourceVersion, n.DeletionTimestamp
	for _, key := range []string{names.LabelTranslate, names.LabelRequestGPUResources} {
		if value, ok := n.Labels[key]; ok {
			metav1.SetMetaDataLabel(&out.ObjectMeta, key, value)
		}
	}
	return out, nil
}
