package why

import "github.com/tranche-dev/tranche/pkg/cluster"

// remedyLog points to the log of the plugin on the pod's node. If the plugin's namespace is not
// known, the command lists its pod.
func (e *Explanation) remedyLog(in *Input, text string) {
	system := cluster.SystemNamespace(in.Classes)
	command := "kubectl get pods " + cluster.InSystem(system) + " -l " + cluster.PluginLabel + " --field-selector spec.nodeName=" + in.Pod.Spec.NodeName
	if system == "" {
		e.remedy(text+" (that of the pod which this lists):", command)
		return
	}
	e.remedy(text+":", "kubectl -n "+system+" logs $("+command+" -o name)")
}
