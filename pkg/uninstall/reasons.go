package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// pluginLabels select the plugins, as the chart labels them.
const pluginLabels = "app.kubernetes.io/component=kubelet-plugin"

// reasons says for each node that still publishes GPUs why that may be, a line
// each. The names of further nodes are left out, beyond a number that people can read.
func (c *Config) reasons(ctx context.Context, left []metav1.ObjectMeta) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes := map[string]bool{}
	for i := range left {
		for _, owner := range left[i].OwnerReferences {
			if owner.Kind == "Node" {
				nodes[owner.Name] = true
			}
		}
	}
	var b strings.Builder
	for i, node := range slices.Sorted(maps.Keys(nodes)) {
		if i == most {
			fmt.Fprintf(&b, "  … and %d more nodes\n", len(nodes)-most)
			break
		}
		fmt.Fprintf(&b, "  node %s: %s\n", node, c.reason(ctx, node))
	}
	return b.String()
}

func (c *Config) reason(ctx context.Context, name string) string {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "it is gone; Kubernetes' garbage collector will remove what it publishes"
	case err != nil:
		return fmt.Sprintf("it cannot be read: %v", err)
	case !nodeReady(node):
		return "it is not ready, so its plugin cannot be reached"
	}
	plugin, err := c.pluginOn(ctx, name)
	switch {
	case err != nil:
		return fmt.Sprintf("its plugin cannot be read: %v", err)
	case plugin == nil:
		return fmt.Sprintf("no plugin runs there (does the nodeSelector of DaemonSet %s leave it out?)", c.DaemonSet)
	case !podReady(plugin):
		return fmt.Sprintf("its plugin does not work: kubectl -n %s logs %s --previous", c.Namespace, plugin.Name)
	}
	return fmt.Sprintf("its plugin could not release everything: kubectl -n %s logs %s", c.Namespace, plugin.Name)
}

// pluginOn is the pod of the plugin on a node, nil: there is none.
func (c *Config) pluginOn(ctx context.Context, node string) (*corev1.Pod, error) {
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: pluginLabels, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil || len(pods.Items) == 0 {
		return nil, err
	}
	return &pods.Items[0], nil
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
