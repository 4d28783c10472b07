package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/test/lab"
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
  three-halves:
    - devices: all
      mig-enabled: true
      mig-devices:
        "3g.40gb": 3
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

// followMIGParted has the controller read mig-parted's configurations from a ConfigMap of the test's
// namespace, until the test ends.
func (s *suite) followMIGParted(configMap string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		for _, key := range []string{names.LabelMIGConfig, names.LabelMIGConfigState} {
			s.labelNode(nodeA, key, "")
		}
		// Without the format, the node is in no profile again.
		if s.lab != nil {
			require.NoError(s.t, s.lab.restartController(s.ctx))
		} else {
			s.helm("rollback", release, "--wait", "--timeout", "8m")
		}
		s.waitFollows(nodeA, "")
	})
	s.set("formats.migParted.enabled=true,formats.migParted.configMap=" + s.namespace + "/" + configMap)
	if s.lab != nil {
		require.NoError(s.t, s.lab.restartController(s.ctx, func(o *lab.ControllerOptions) {
			o.Labels.Projects = map[adopt.Project]adopt.ConfigMap{adopt.MIGParted: {Namespace: s.namespace, Name: configMap, Key: "config.yaml"}}
		}))
	}
}

// A node with the label of mig-manager gets the configuration from mig-parted's ConfigMap, whose
// namespace is not that of Tranche; the chart's Role and policy allow what this needs.
func TestMIGConfigLabel(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mig-configs"}, Data: map[string]string{"config.yaml": migConfigs, "other": "{"}}
	s.followMIGParted(configMap.Name)

	s.gpuPod("before", classWhole)
	s.waitRunning("before")
	s.labelNode(nodeA, names.LabelMIGConfig, "Balanced_A")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "failed") // there is no ConfigMap yet
	_, err := configMaps.Create(s.ctx, configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	s.waitGone("before")
	n := s.waitFollows(nodeA, "mig-parted.balanced-a")
	assert.Equal(t, v1beta1.FromLabel, n.Status.Applied.Source)
	assert.Equal(t, 8*4, s.machine(nodeA).instances())
	s.gpuPod("small", class1g10gb)
	s.waitRunning("small")

	for name, why := range map[string][2]string{
		"typo":         {names.ReasonProfileNotFound, "existing profiles: Balanced_A, all-disabled, three-halves"},
		"three-halves": {names.ReasonProfileDoesNotFit, "3g.40gb"},
	} {
		s.labelNode(nodeA, names.LabelMIGConfig, name)
		s.waitLabel(nodeA, names.LabelMIGConfigState, "failed")
		assert.Contains(t, s.requireCondition(s.gpuNode(nodeA), names.ConditionReady, metav1.ConditionFalse, why[0]), why[1])
		s.labelNode(nodeA, names.LabelMIGConfig, "Balanced_A")
		s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	}

	// A ConfigMap that is broken is told, and takes nothing away.
	broken := configMap.DeepCopy()
	broken.Data["config.yaml"] = "version: v1\nmig-config: {}\n"
	_, err = configMaps.Update(s.ctx, broken, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "failed")
	s.waitEvent(func() []corev1.Event {
		list, err := s.client.CoreV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + configMap.Name})
		require.NoError(t, err)
		return list.Items
	}, "the ConfigMap", names.EventConfigMapInvalid, []string{"keep what they have"})
	assert.Equal(t, 8*4, s.machine(nodeA).instances())
	_, err = configMaps.Update(s.ctx, configMap, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	require.Equal(t, corev1.PodRunning, s.pod("small").Status.Phase)

	s.delete("small")
	s.labelNode(nodeA, names.LabelMIGConfig, "all-disabled")
	s.waitFollows(nodeA, "mig-parted.all-disabled")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	assert.Zero(t, s.machine(nodeA).instances())

	// The removal of the label changes nothing: the controller has looked when it ends a report.
	s.labelNode(nodeA, names.LabelMIGConfig, "")
	s.labelNode(nodeA, names.LabelMIGConfigState, "pending")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	s.waitFollows(nodeA, "mig-parted.all-disabled")
}

// labelNode sets a label of a node, or removes it if the value is empty.
func (s *suite) labelNode(node, key, value string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	}
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}
