package cluster

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// PluginLabel selects the plugin's objects, whatever the release and its namespace are called.
const PluginLabel = "app.kubernetes.io/component=kubelet-plugin"

// SystemNamespace returns the namespace of Tranche, as the classes of its chart name it,
// empty if none does.
func SystemNamespace(classes []resourceapi.DeviceClass) string {
	for i := range classes {
		if namespace := classes[i].Annotations[names.AnnotationSystemNamespace]; namespace != "" {
			return namespace
		}
	}
	return ""
}

// InSystem returns the option of kubectl for the namespace of Tranche.
func InSystem(namespace string) string {
	if namespace == "" {
		return "-A"
	}
	return "-n " + namespace
}
