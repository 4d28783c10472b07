package waiting

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// CacheObjects keep of ResourceSlices only that they have changed.
func CacheObjects() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&resourceapi.ResourceSlice{}: {Transform: trimSlice}}
}

// trimSlice keeps the node of a slice.
func trimSlice(o any) (any, error) {
	s, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	out := &metav1.PartialObjectMetadata{TypeMeta: s.TypeMeta}
	out.Name, out.UID, out.ResourceVersion = s.Name, s.UID, s.ResourceVersion
	for _, owner := range s.OwnerReferences {
		if owner.Kind == "Node" {
			out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: owner.Kind, Name: owner.Name})
		}
	}
	return out, nil
}

// Setup adds an Explainer to a manager. It uses the index of claims by node that package controller makes.
func Setup(mgr manager.Manager, o Options) error {
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Field: fields.SelectorFromSet(fields.Set{"status.phase": string(corev1.PodPending), "spec.nodeName": ""}), Transform: trimPod,
		}},
	})
	if err != nil {
		return fmt.Errorf("prepare the cache of pods that wait: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return fmt.Errorf("add the cache of pods that wait: %w", err)
	}
	e := New(mgr.GetClient(), mgr.GetAPIReader(), pods, o)
	if e.HasRules, err = cluster.ServesRules(mgr.GetRESTMapper()); err != nil {
		return err
	}
	watched := []client.Object{&v1beta1.GPUNode{}, &corev1.Node{}, &resourceapi.ResourceClaim{}, &resourceapi.DeviceClass{}, sliceMetadata()}
	if e.HasRules {
		watched = append(watched, &resourceapi.DeviceTaintRule{})
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for _, o := range watched {
			informer, err := mgr.GetCache().GetInformer(ctx, o)
			if err != nil {
				return fmt.Errorf("watch %T: %w", o, err)
			}
			if _, err := informer.AddEventHandler(e.changes.handler()); err != nil {
				return fmt.Errorf("watch %T: %w", o, err)
			}
		}
		return e.Run(ctx)
	}))
	if err != nil {
		return fmt.Errorf("add what explains pods that wait: %w", err)
	}
	return nil
}

func sliceMetadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"))
	return o
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
