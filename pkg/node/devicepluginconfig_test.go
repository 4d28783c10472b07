package node

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/profile/deviceplugin"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// The device plugin's configurations come from a ConfigMap of another namespace. A node without
// the label has the default; what cannot be read leaves the node as it is.
func TestDevicePluginConfigMap(t *testing.T) {
	shared := func(replicas int) string {
		return fmt.Sprintf("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: %d}]}}", replicas)
	}
	m := newMachine(t, nodetest.NewAPI())
	m.config.DevicePluginConfigMap, m.config.DevicePluginUnlabelled = "gpu-operator/slices", true
	configMaps := m.api.CoreV1().ConfigMaps("gpu-operator")
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: "slices"},
		Data:       map[string]string{"default": shared(5), "four.yaml": shared(4)},
	}
	_, err := configMaps.Create(t.Context(), configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	_, _ = m.start()
	awaitReplicas(t, m.api, fraction0, 200)
	m.label(deviceplugin.Label, "four")
	awaitReplicas(t, m.api, fraction0, 250)

	require.NoError(t, configMaps.Delete(t.Context(), "slices", metav1.DeleteOptions{}))
	nodetest.AwaitEvent(t, m.api, "DevicePluginConfigInvalid", "ConfigMap gpu-operator/slices does not exist")
	awaitReplicas(t, m.api, fraction0, 250)
	configMap.Data["four.yaml"] = shared(2)
	_, err = configMaps.Create(t.Context(), configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	awaitReplicas(t, m.api, fraction0, 500)
	nodetest.AwaitEvent(t, m.api, "DevicePluginConfigValid", "valid again")
}
