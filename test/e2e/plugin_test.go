package e2e

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	pluginNamespace = "tranche-system"
	pluginName      = "tranche-kubelet-plugin"
	pluginLabel     = "app.kubernetes.io/component=kubelet-plugin"
)

// plugin waits until the plugin of a node is ready and returns its pod.
func (s *suite) plugin(node string) (pod *corev1.Pod) {
	s.t.Helper()
	s.eventually("the plugin of "+node+" is ready", func() (bool, string) {
		list, err := s.client.CoreV1().Pods(pluginNamespace).List(s.ctx, metav1.ListOptions{
			LabelSelector: pluginLabel,
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		})
		require.NoError(s.t, err)
		if len(list.Items) != 1 {
			return false, fmt.Sprintf("there are %d", len(list.Items))
		}
		pod = &list.Items[0]
		return pod.DeletionTimestamp == nil && isReady(pod), fmt.Sprintf("%+v", pod.Status)
	})
	return pod
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// restartPlugin replaces the plugin's pod of a node and waits for the new one.
func (s *suite) restartPlugin(node string) *corev1.Pod {
	s.t.Helper()
	if s.lab != nil {
		require.NoError(s.t, s.lab.nodes[node].StopPlugin())
		require.NoError(s.t, s.lab.nodes[node].StartPlugin())
		return nil
	}
	old := s.plugin(node)
	require.NoError(s.t, s.client.CoreV1().Pods(pluginNamespace).Delete(s.ctx, old.Name, metav1.DeleteOptions{}))
	s.eventually("there is another plugin on "+node, func() (bool, string) {
		pod := s.plugin(node)
		return pod.UID != old.UID, "there is still " + old.Name
	})
	return s.plugin(node)
}

// killPlugin ends the plugin's process on a node with SIGKILL. The kubelet
// starts it again.
func (s *suite) killPlugin(pod *corev1.Pod) {
	s.t.Helper()
	require.Positive(s.t, s.killProcesses(pod), "no process of pod %s on %s", pod.Name, pod.Spec.NodeName)
}

// get asks the plugin of a node over HTTP, through the API server of a real cluster.
func (s *suite) get(node, path string) (string, error) {
	s.t.Helper()
	if s.lab != nil {
		return s.lab.get(s.ctx, node, path)
	}
	body, err := s.client.CoreV1().RESTClient().Get().
		Namespace(pluginNamespace).Resource("pods").Name(s.plugin(node).Name + ":8080").
		SubResource("proxy").Suffix(path).DoRaw(s.ctx)
	return string(body), err
}

// slices lists what a node publishes.
func (s *suite) slices(node string) []resourceapi.ResourceSlice {
	s.t.Helper()
	list, err := s.client.ResourceV1().ResourceSlices().List(s.ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: node,
		resourceapi.ResourceSliceSelectorDriver:   names.DriverName,
	}.String()})
	require.NoError(s.t, err)
	for i := range list.Items {
		devices := &list.Items[i].Spec.Devices
		*devices = slices.DeleteFunc(*devices, func(d resourceapi.Device) bool { return gpu.IsMonitor(d.Name) })
	}
	return list.Items
}

// tainted reports whether all devices of a node have a taint.
func (s *suite) tainted(node, key string) bool {
	s.t.Helper()
	devices := 0
	for _, slice := range s.slices(node) {
		devices += len(slice.Spec.Devices)
		for i := range slice.Spec.Devices {
			if !slices.ContainsFunc(slice.Spec.Devices[i].Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == key }) {
				return false
			}
		}
	}
	return devices > 0
}
