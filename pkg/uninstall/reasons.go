package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// pluginLabels select the plugins, as the chart labels them.
const pluginLabels = "app.kubernetes.io/component=kubelet-plugin"

// reasons says for each node that still publishes GPUs why that may be, a line
// each.
func (c *Config) reasons(ctx context.Context, left []resourceapi.ResourceSlice) string {
	nodes := map[string]bool{}
	for i := range left {
		nodes[ptr.Deref(left[i].Spec.NodeName, "")] = true
	}
	plugins := map[string]*corev1.Pod{}
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: pluginLabels})
	if err == nil {
		for i := range pods.Items {
			plugins[pods.Items[i].Spec.NodeName] = &pods.Items[i]
		}
	}
	var b strings.Builder
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(&b, "  node %s: %s\n", node, c.reason(ctx, node, plugins[node]))
	}
	return b.String()
}

func (c *Config) reason(ctx context.Context, name string, plugin *corev1.Pod) string {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "it is gone; Kubernetes' garbage collector will remove what it publishes"
	case err != nil:
		return fmt.Sprintf("it cannot be read: %v", err)
	case !nodeReady(node):
		return "it is not ready, so its plugin cannot be reached"
	case plugin == nil:
		return fmt.Sprintf("no plugin runs there (does the nodeSelector of DaemonSet %s leave it out?)", c.DaemonSet)
	case !podReady(plugin):
		return fmt.Sprintf("its plugin does not work: kubectl -n %s logs %s --previous", c.Namespace, plugin.Name)
	}
	return fmt.Sprintf("its plugin could not release everything: kubectl -n %s logs %s", c.Namespace, plugin.Name)
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
