package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// migConfigs is a file of mig-parted, with names that no object can have.
const migConfigs = `
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  Seven_1g:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  three-of-them:
  - {devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 3}}
`

// label sets a label of the node; an empty value removes it.
func (c *cluster) label(key, value string) {
	c.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	}
	_, err := c.kube.CoreV1().Nodes().Patch(c.t.Context(), nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(c.t, err)
}

// awaitReport waits for the report on nvidia.com/mig.config.
func (c *cluster) awaitReport(want string) {
	c.t.Helper()
	c.await("the node does not report "+want, func() bool {
		node, err := c.kube.CoreV1().Nodes().Get(c.t.Context(), nodeName, metav1.GetOptions{})
		return err == nil && node.Labels[names.LabelMIGConfigState] == want
	})
}

// A node that has mig-parted's label gets the configuration of mig-parted's ConfigMap, and
// reports as mig-manager does. Nothing stays pending.
func TestMIGConfigLabel(t *testing.T) {
	c := startCluster(t)
	const namespace, name = "gpu-operator", "mig"
	_, err := c.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	configMaps := c.kube.CoreV1().ConfigMaps(namespace)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"config.yaml": migConfigs, "other": "{"}}
	c.startPlugin()
	c.startController(func(o *controller.Options) {
		o.Tools = state.Tools{v1alpha1.FromMIGParted: {Namespace: namespace, Name: name, Key: "config.yaml"}}
	})
	c.await("the node publishes no partitions", func() bool { return c.devices(isPartition) > 0 })

	c.label(names.LabelMIGConfig, "Seven_1g")
	c.awaitReport("failed") // there is no ConfigMap yet
	_, err = configMaps.Create(t.Context(), configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	c.awaitReport("success")
	n := c.gpuNode()
	assert.Equal(t, "Seven_1g", n.Status.Applied.Profile)
	assert.Equal(t, v1alpha1.FromMIGParted, n.Status.Applied.Source)
	for _, g := range n.Status.Node.GPUs {
		assert.Len(t, g.Partitions, 7, g.Name)
	}

	c.label(names.LabelMIGConfig, "three-of-them")
	c.awaitReport("failed")
	c.label(names.LabelMIGConfig, "no-such-name")
	c.await("the names that exist are not listed", func() bool {
		for _, condition := range c.gpuNode().Status.Conditions {
			if condition.Reason == names.ReasonProfileNotFound {
				return strings.Contains(condition.Message, "existing profiles: Seven_1g, all-disabled, three-of-them")
			}
		}
		return false
	})
	c.awaitReport("failed")

	// A ConfigMap that is broken is told, and takes nothing away.
	c.label(names.LabelMIGConfig, "Seven_1g")
	c.awaitReport("success")
	broken := configMap.DeepCopy()
	broken.Data["config.yaml"] = strings.Replace(migConfigs, "version: v1", "version: v7", 1)
	_, err = configMaps.Update(t.Context(), broken, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.awaitReport("failed")
	c.await("nobody says what is wrong with the ConfigMap", func() bool {
		events, err := c.kube.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{
			FieldSelector: fields.Set{"reason": names.EventConfigMapInvalid, "regarding.name": name}.String(),
		})
		for i := range events.Items {
			if strings.Contains(events.Items[i].Note, "v7") {
				return true
			}
		}
		return err != nil
	})
	assert.Equal(t, "Seven_1g", c.gpuNode().Status.Applied.Profile)
	_, err = configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.awaitReport("success")

	// The removal of the label changes nothing.
	c.label(names.LabelMIGConfig, "")
	c.label(names.LabelProfile, "missing")
	c.await("the controller has not looked", func() bool {
		for _, condition := range c.gpuNode().Status.Conditions {
			if condition.Reason == names.ReasonProfileNotFound {
				return true
			}
		}
		return false
	})
	c.label(names.LabelProfile, "")
	c.await("the node is not ready", func() bool {
		for _, condition := range c.gpuNode().Status.Conditions {
			if condition.Reason == names.ReasonApplied {
				return true
			}
		}
		return false
	})
	assert.Equal(t, "Seven_1g", c.gpuNode().Status.Applied.Profile)
	c.awaitReport("success")
}
