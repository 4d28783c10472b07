package read

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
)

// Source lists and watches objects.
type Source interface {
	// ListWatch returns a ListerWatcher for the objects of example's type that the selectors
	// select. namespace is empty for all namespaces and for cluster-scoped kinds.
	ListWatch(example runtime.Object, namespace string, only metav1.ListOptions) cache.ListerWatcher
}

// Clients is a Source that uses clients, with their rights.
type Clients struct {
	Kubernetes kubernetes.Interface
	Ours       client.Interface
}

var _ Source = Clients{}

// NewClients returns clients for an API server. They read Kubernetes' own kinds as protobuf: in JSON,
// the ResourceSlices of a thousand nodes are 100 MB.
func NewClients(config *rest.Config) (c Clients, err error) {
	compact := rest.CopyConfig(config)
	compact.ContentType, compact.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.Kubernetes, err = kubernetes.NewForConfig(compact); err != nil {
		return c, fmt.Errorf("client for the API server: %w", err)
	}
	c.Ours, err = client.New(config)
	return c, err
}

// ListWatch implements Source. It panics for an unknown kind.
func (c Clients) ListWatch(example runtime.Object, namespace string, only metav1.ListOptions) cache.ListerWatcher {
	k := c.Kubernetes
	switch example.(type) {
	case *v1beta1.GPUNode:
		return of(c.Ours.GPUNodes(), c.Ours.GPUNodes(), only)
	case *v1beta1.PartitionPlan:
		return of(c.Ours.PartitionPlans(), c.Ours.PartitionPlans(), only)
	case *v1beta1.PartitionProfile:
		return of(c.Ours.PartitionProfiles(), c.Ours.PartitionProfiles(), only)
	case *resourceapi.ResourceSlice:
		return of(k.ResourceV1().ResourceSlices(), k, only)
	case *resourceapi.ResourceClaim:
		return of(k.ResourceV1().ResourceClaims(namespace), k, only)
	case *resourceapi.ResourceClaimTemplate:
		return of(k.ResourceV1().ResourceClaimTemplates(namespace), k, only)
	case *resourceapi.DeviceClass:
		return of(k.ResourceV1().DeviceClasses(), k, only)
	case *resourceapi.DeviceTaintRule:
		return of(k.ResourceV1().DeviceTaintRules(), k, only)
	case *corev1.Node:
		return of(k.CoreV1().Nodes(), k, only)
	case *corev1.Namespace:
		return of(k.CoreV1().Namespaces(), k, only)
	case *corev1.Pod:
		return of(k.CoreV1().Pods(namespace), k, only)
	case *corev1.Event:
		return of(k.CoreV1().Events(namespace), k, only)
	case *corev1.ResourceQuota:
		return of(k.CoreV1().ResourceQuotas(namespace), k, only)
	case *corev1.PersistentVolumeClaim:
		return of(k.CoreV1().PersistentVolumeClaims(namespace), k, only)
	case *corev1.PersistentVolume:
		return of(k.CoreV1().PersistentVolumes(), k, only)
	case *storagev1.StorageClass:
		return of(k.StorageV1().StorageClasses(), k, only)
	case *policyv1.PodDisruptionBudget:
		return of(k.PolicyV1().PodDisruptionBudgets(namespace), k, only)
	case *batchv1.Job:
		return of(k.BatchV1().Jobs(namespace), k, only)
	case *appsv1.ReplicaSet:
		return of(k.AppsV1().ReplicaSets(namespace), k, only)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return of(k.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings(), k, only)
	}
	panic(fmt.Sprintf("no reader for objects of the type %T", example))
}

// lister is the part of a typed client that reads. L is the type of its lists.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func of[L runtime.Object](objects lister[L], from any, only metav1.ListOptions) cache.ListerWatcher {
	return client.ListWatchOf(from, objects.List, objects.Watch, only)
}
