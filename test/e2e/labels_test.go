package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// migConfigs is a file of mig-parted.
const migConfigs = `
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  Balanced_A:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 2
        "2g.20gb": 1
        "3g.40gb": 1
`

// waitLabel waits for the value of a label of a node.
func (s *suite) waitLabel(node, key, value string) {
	s.t.Helper()
	s.eventually("label "+key+" of "+node+" is "+value, func() (bool, string) {
		n, err := s.client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
		require.NoError(s.t, err)
		return n.Labels[key] == value, n.Labels[key] + "\n" + gpuNodeText(s.gpuNode(node))
	})
}

// A node with the label of mig-manager gets the configuration from mig-parted's ConfigMap, whose
// namespace is not that of Tranche; the chart's Role and policy allow what this needs.
func TestMIGConfigLabelOnTheCluster(t *testing.T) {
	s := startOnCluster(t)
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	configMap, err := configMaps.Create(s.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "mig-configs"}, Data: map[string]string{"config.yaml": migConfigs},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, key := range []string{names.LabelMIGConfig, names.LabelMIGConfigState} {
			s.labelNode(nodeA, key, "")
		}
		// Without the format, the node is in no profile again.
		s.helm("rollback", release, "--wait", "--timeout", "8m")
		s.waitFollows(nodeA, "")
	})
	s.set("formats.migParted.enabled=true,formats.migParted.configMap=" + s.namespace + "/mig-configs")

	s.gpuPod("before", classWhole)
	s.waitRunning("before")
	s.labelNode(nodeA, names.LabelMIGConfig, "Balanced_A")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	s.waitGone("before")
	n := s.waitFollows(nodeA, "Balanced_A")
	assert.Equal(t, v1alpha1.FromMIGParted, n.Status.Applied.Source)
	assert.Equal(t, 8*4, s.machine(nodeA).instances())
	s.gpuPod("small", class1g10gb)
	s.waitRunning("small")

	s.labelNode(nodeA, names.LabelMIGConfig, "typo")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "failed")
	said := s.requireCondition(s.gpuNode(nodeA), names.ConditionReady, metav1.ConditionFalse, names.ReasonProfileNotFound)
	assert.Contains(t, said, "existing profiles: Balanced_A, all-disabled")
	s.labelNode(nodeA, names.LabelMIGConfig, "Balanced_A")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")

	configMap.Data["config.yaml"] = "version: v1\nmig-config: {}\n"
	configMap, err = configMaps.Update(s.ctx, configMap, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "failed")
	s.waitEvent(func() []corev1.Event {
		list, err := s.client.CoreV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + configMap.Name})
		require.NoError(t, err)
		return list.Items
	}, "the ConfigMap", names.EventConfigMapInvalid, []string{"keep what they have"})
	assert.Equal(t, 8*4, s.machine(nodeA).instances())
	configMap.Data["config.yaml"] = migConfigs
	_, err = configMaps.Update(s.ctx, configMap, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	require.Equal(t, corev1.PodRunning, s.pod("small").Status.Phase)

	s.delete("small")
	s.labelNode(nodeA, names.LabelMIGConfig, "all-disabled")
	s.waitFollows(nodeA, "all-disabled")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	assert.Zero(t, s.machine(nodeA).instances())
}
