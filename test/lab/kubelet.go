package lab

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

const (
	// shortGrace is the longest grace period of a pod that is not waited for.
	shortGrace = time.Second
	// retryPause is the time between two attempts to prepare or release a claim. A real kubelet
	// lets more time pass.
	retryPause = 300 * time.Millisecond
	workers    = 16
)

// kubelet prepares the claims of the node's pods, says that the pods run, and ends them.
type kubelet struct {
	node    *Node
	api     kubernetes.Interface
	pods    cache.SharedInformer
	queue   workqueue.TypedRateLimitingInterface[string]
	running []*running

	plugin registration

	// mu protects what follows.
	mu sync.Mutex
	// held are the claims that are prepared, by the UID of the pod and the claim.
	held map[types.UID]map[types.UID]*preparedClaim
}

// preparedClaim is a claim as the plugin has prepared it.
type preparedClaim struct {
	ref     *drapb.Claim
	devices []*drapb.Device
}

func startKubelet(n *Node) *kubelet {
	k := &kubelet{
		node: n, api: n.cluster.Core, held: map[types.UID]map[types.UID]*preparedClaim{},
		plugin: registration{sockets: n.Path(kubeletDir, "plugins_registry", "*.sock")},
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryPause, retryPause)),
	}
	ofNode := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.Name).String()
	}
	k.pods = cache.NewSharedInformer(cache.NewFilteredListWatchFromClient(k.api.CoreV1().RESTClient(), "pods", "", ofNode), &corev1.Pod{}, 0)
	enqueue := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			k.queue.Add(key)
		}
	}
	// An error is returned only if the informer has been stopped.
	_, _ = k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, DeleteFunc: enqueue})
	k.running = append(k.running, run("the kubelet's cache", func(ctx context.Context) error { k.pods.RunWithContext(ctx); return nil }))
	k.running = append(k.running, run("the kubelet's plugin watcher", k.plugin.watch))
	for range workers {
		k.running = append(k.running, run("a kubelet", func(ctx context.Context) error { k.work(ctx); return nil }))
	}
	return k
}

func (k *kubelet) stop() error {
	k.queue.ShutDown()
	for _, r := range k.running {
		if err := r.stop(); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelet) work(ctx context.Context) {
	for {
		key, shutDown := k.queue.Get()
		if shutDown {
			return
		}
		again, err := k.sync(ctx, key)
		switch {
		case err != nil:
			k.queue.AddRateLimited(key)
		case again > 0:
			k.queue.AddAfter(key, again)
		default:
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

// sync does what is due for one pod. again is when there is more to do.
func (k *kubelet) sync(ctx context.Context, key string) (again time.Duration, err error) {
	o, there, err := k.pods.GetStore().GetByKey(key)
	if err != nil {
		return 0, err
	}
	pod, _ := o.(*corev1.Pod)
	if !there {
		return 0, k.releaseGone(ctx)
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return k.end(ctx, pod)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return 0, k.release(ctx, pod.UID)
	case pod.Status.Phase == corev1.PodRunning:
		return 0, nil
	}
	if err := k.prepare(ctx, pod); err != nil {
		k.event(ctx, pod, err)
		return 0, err
	}
	return 0, k.setRunning(ctx, pod)
}

// end ends a pod when its grace period is over, as if its program ignored that it is asked to end,
// releases its claims, and says that it is gone.
func (k *kubelet) end(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	if left := time.Until(pod.DeletionTimestamp.Time); pod.Status.Phase == corev1.PodRunning && grace > shortGrace && left > 0 {
		return left, nil
	}
	if err := k.release(ctx, pod.UID); err != nil {
		return 0, err
	}
	zero := int64(0)
	err = k.api.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	return 0, err
}

func (k *kubelet) setRunning(ctx context.Context, pod *corev1.Pod) error {
	running := pod.DeepCopy()
	now := metav1.Now()
	running.Status.Phase, running.Status.StartTime = corev1.PodRunning, &now
	running.Status.Conditions = slices.DeleteFunc(running.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	running.Status.Conditions = append(running.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now})
	running.Status.ContainerStatuses = nil
	for i := range pod.Spec.Containers {
		running.Status.ContainerStatuses = append(running.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: pod.Spec.Containers[i].Name, Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	_, err := k.api.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, running, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// event says on a pod why it does not start, as the kubelet does.
func (k *kubelet) event(ctx context.Context, pod *corev1.Pod, problem error) {
	now := metav1.Now()
	_, _ = k.api.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + "-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Reason:         "FailedPrepareDynamicResources", Message: "Failed to prepare dynamic resources: " + problem.Error(),
		Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "kubelet", Host: k.node.Name}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
}
