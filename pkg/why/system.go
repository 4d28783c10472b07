package why

import resourceapi "k8s.io/api/resource/v1"

// pluginLabel selects the plugin's objects, whatever the release and its namespace are called.
const pluginLabel = "app.kubernetes.io/component=kubelet-plugin"

// namespaceAnnotation of a DeviceClass of the chart names the namespace that Tranche is in.
const namespaceAnnotation = "tranche.dev/namespace"

// SystemOf finds the namespace of Tranche's own pods by the classes that its chart made; empty
// when none of them tells.
func SystemOf(classes []resourceapi.DeviceClass) string {
	for i := range classes {
		if namespace := classes[i].Annotations[namespaceAnnotation]; namespace != "" {
			return namespace
		}
	}
	return ""
}

// inSystem is the option of kubectl for the namespace of Tranche's own pods.
func (in *Input) inSystem() string {
	if in.System == "" {
		return "-A"
	}
	return "-n " + in.System
}

// remedyLog points to the log of the plugin on the pod's node. Where the plugin's namespace is
// not known, the command lists the pod that has the log.
func (e *Explanation) remedyLog(in *Input, text string) {
	command := "kubectl get pods " + in.inSystem() + " -l " + pluginLabel + " --field-selector spec.nodeName=" + in.Pod.Spec.NodeName
	if in.System == "" {
		e.remedy(text+" (that of the pod which this lists):", command)
		return
	}
	e.remedy(text+":", "kubectl -n "+in.System+" logs $("+command+" -o name)")
}
