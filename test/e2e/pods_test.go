package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// prepareFailed is the reason of the event of a pod whose claim is not prepared.
const prepareFailed = "FailedPrepareDynamicResources"

const (
	class1g10gb = "gpu-mig-1g-10gb.tranche.dev"
	class3g40gb = "gpu-mig-3g-40gb.tranche.dev"
	class4g40gb = "gpu-mig-4g-40gb.tranche.dev"
	classWhole  = "gpu-nvidia.tranche.dev"
)

// request asks for one device of a class, on one GPU if pci is not empty.
func request(class, pci string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	if pci != "" {
		exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes["resource.kubernetes.io"].pciBusID == %q`, pci),
		}}}
	}
	return resourceapi.DeviceRequest{Name: "gpu", Exactly: exactly}
}

// template makes a claim template, unless there is one of that name.
func (s *suite) template(name string, spec resourceapi.DeviceClaim) {
	s.t.Helper()
	_, err := s.client.ResourceV1().ResourceClaimTemplates(s.namespace).Create(s.ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: spec}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(s.t, err)
	}
}

// newPod is a pod that sleeps and has what the claims give.
func newPod(name string, claims ...corev1.PodResourceClaim) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			ResourceClaims:                claims,
			Containers: []corev1.Container{{
				Name: "main", Image: "busybox:1.35", Command: []string{"sleep", "1000000"},
			}},
		},
	}
	for _, c := range claims {
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: c.Name})
	}
	return pod
}

func fromTemplate(template string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template}
}

func fromClaim(claim string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim}
}

// gpuPod makes a pod with one device of a class. It runs on node-a.
func (s *suite) gpuPod(name, class string) {
	s.t.Helper()
	s.gpuPodOn(name, class, "")
}

// gpuPodOn makes a pod with one device of a class on the GPU at an address.
func (s *suite) gpuPodOn(name, class, pci string) {
	s.t.Helper()
	s.gpuPodAt(nodeA, name, class, pci)
}

// gpuPodAt makes a pod on a node with one device of a class, on one GPU if pci
// is not empty.
func (s *suite) gpuPodAt(node, name, class, pci string) {
	s.t.Helper()
	template, _, _ := strings.Cut(class, ".")
	if pci != "" {
		template += "-" + strings.NewReplacer(":", "-", ".", "-").Replace(pci)
	}
	s.template(template, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request(class, pci)}})
	pod := newPod(name, fromTemplate(template))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	s.create(pod)
}

func (s *suite) create(pod *corev1.Pod) {
	s.t.Helper()
	_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

func (s *suite) pod(name string) *corev1.Pod {
	s.t.Helper()
	pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	require.NoError(s.t, err)
	return pod
}

// nudge makes the kubelet look again at pods that do not run yet. When their
// claims cannot be prepared, or the API server does not let it read them yet
// (the Node authorizer is a moment late), it would by itself only look again
// after a minute or more.
func (s *suite) nudge(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"tranche.dev/nudged":%q}}}`, time.Now())
		_, err := s.client.CoreV1().Pods(pod.Namespace).Patch(s.ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
		}
	}
}

// nudging calls nudge at times, for waits that look more often.
func (s *suite) nudging() func(...*corev1.Pod) {
	last := time.Now()
	return func(pods ...*corev1.Pod) {
		s.t.Helper()
		if time.Since(last) > 3*time.Second {
			s.nudge(pods...)
			last = time.Now()
		}
	}
}

// waitRunning waits until pods run and returns the last of them.
func (s *suite) waitRunning(names ...string) (pod *corev1.Pod) {
	s.t.Helper()
	nudge := s.nudging()
	for _, name := range names {
		s.eventually("pod "+name+" runs", func() (bool, string) {
			pod = s.pod(name)
			nudge(pod)
			return pod.Status.Phase == corev1.PodRunning, "its phase is " + string(pod.Status.Phase) + "; its events:\n" + s.eventsText(pod.Name)
		})
	}
	return pod
}

// waitAllRunning waits until a number of pods runs in the namespace.
func (s *suite) waitAllRunning(count int) {
	s.t.Helper()
	nudge := s.nudging()
	s.eventually(fmt.Sprintf("%d pods run", count), func() (bool, string) {
		running, others := s.running()
		nudge(others...)
		return len(running) == count, fmt.Sprintf("%d run: %v", len(running), running)
	})
}

func (s *suite) running() (names []string, others []*corev1.Pod) {
	s.t.Helper()
	pods, err := s.client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning && pods.Items[i].DeletionTimestamp == nil {
			names = append(names, pods.Items[i].Name)
		} else {
			others = append(others, &pods.Items[i])
		}
	}
	return names, others
}

// waitUnschedulable waits until the scheduler has said why a pod must wait.
func (s *suite) waitUnschedulable(name string) {
	s.t.Helper()
	s.waitPodEvent(name, "FailedScheduling", "cannot allocate all claims")
	assert.Empty(s.t, s.pod(name).Spec.NodeName)
}

// delete deletes a pod and waits until it is gone.
func (s *suite) delete(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.beginDelete(name)
	}
	for _, name := range names {
		s.waitGone(name)
	}
}

func (s *suite) beginDelete(name string) {
	s.t.Helper()
	require.NoError(s.t, s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, name, now()))
}

func (s *suite) waitGone(name string) {
	s.t.Helper()
	s.eventually("pod "+name+" is gone", func() (bool, string) {
		_, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), "its events:\n" + s.eventsText(name)
	})
}

// deletePods deletes all pods and claims of the test and waits until the pods
// are gone.
func (s *suite) deletePods() {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(s.namespace)
	require.NoError(s.t, pods.DeleteCollection(s.ctx, now(), metav1.ListOptions{}))
	s.eventually("all pods are gone", func() (bool, string) {
		left, err := pods.List(s.ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		var names []string
		for i := range left.Items {
			names = append(names, left.Items[i].Name)
		}
		return len(names) == 0, strings.Join(names, ", ")
	})
	claims := s.client.ResourceV1().ResourceClaims(s.namespace)
	require.NoError(s.t, claims.DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// exec runs a command in a container of a pod.
func (s *suite) exec(namespace, pod, container string, command ...string) string {
	s.t.Helper()
	return s.kubectl(append([]string{"-n", namespace, "exec", pod, "-c", container, "--"}, command...)...)
}

// claims reads the claims of a pod, the one for its extended resources included.
func (s *suite) claims(pod *corev1.Pod) []*resourceapi.ResourceClaim {
	s.t.Helper()
	var names []string
	for _, status := range pod.Status.ResourceClaimStatuses {
		names = append(names, *status.ResourceClaimName)
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		names = append(names, status.ResourceClaimName)
	}
	require.NotEmpty(s.t, names, "pod %s has no claim", pod.Name)
	claims := make([]*resourceapi.ResourceClaim, len(names))
	for i, name := range names {
		var err error
		claims[i], err = s.client.ResourceV1().ResourceClaims(pod.Namespace).Get(s.ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
	}
	return claims
}

// allocated is the one device of a request of a pod, of its only one if the
// name is empty.
func (s *suite) allocated(pod *corev1.Pod, request string) resourceapi.DeviceRequestAllocationResult {
	s.t.Helper()
	var results []resourceapi.DeviceRequestAllocationResult
	for _, claim := range s.claims(pod) {
		require.NotNil(s.t, claim.Status.Allocation)
		results = append(results, claim.Status.Allocation.Devices.Results...)
	}
	if request != "" {
		results = slices.DeleteFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Request != request })
	}
	require.Len(s.t, results, 1)
	return results[0]
}

// podEvents lists the events of a pod of the test.
func (s *suite) podEvents(pod string) []corev1.Event {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": pod}.String(),
	})
	require.NoError(s.t, err)
	return list.Items
}

func (s *suite) eventsText(pod string) string {
	s.t.Helper()
	return eventsText(s.podEvents(pod))
}

func eventsText(events []corev1.Event) string {
	var b strings.Builder
	for i := range events {
		fmt.Fprintf(&b, "%s: %s\n", events[i].Reason, events[i].Message)
	}
	return b.String()
}

// waitPodEvent waits for an event of a pod and returns its message.
func (s *suite) waitPodEvent(pod, reason string, parts ...string) string {
	s.t.Helper()
	nudge := s.nudging()
	return s.waitEvent(func() []corev1.Event {
		nudge(s.pod(pod))
		return s.podEvents(pod)
	}, "pod "+pod, reason, parts)
}

// waitNodeEvent waits for an event of a node and returns its message.
func (s *suite) waitNodeEvent(node, reason string, parts ...string) string {
	s.t.Helper()
	return s.waitEvent(func() []corev1.Event {
		list, err := s.client.CoreV1().Events("").List(s.ctx, metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node, "reason": reason}.String(),
		})
		require.NoError(s.t, err)
		return list.Items
	}, "node "+node, reason, parts)
}

func (s *suite) waitEvent(list func() []corev1.Event, of, reason string, parts []string) (message string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s has an event %s with %q", of, reason, parts), func() (bool, string) {
		events := list()
		for i := range events {
			message = events[i].Message
			if events[i].Reason == reason && containsAll(message, parts) {
				return true, ""
			}
		}
		return false, "its events:\n" + eventsText(events)
	})
	return message
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// requireNextPodRuns checks that what went wrong has no consequences: the next
// pod runs, with exactly what it asked for.
func (s *suite) requireNextPodRuns() {
	s.t.Helper()
	s.gpuPod("next", class1g10gb)
	pod := s.waitRunning("next")
	s.requireInstances(1)
	require.Equal(s.t, s.nodesOf(nodeA, s.allocated(pod, "")), s.seen(pod, "main"))
	s.delete("next")
}
