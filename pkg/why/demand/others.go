package demand

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Others returns what else can keep a pod off a node. It is not compared with the nodes, because that
// requires the other pods and the volumes.
func Others(pod *corev1.Pod) []string {
	var out []string
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			out = append(out, "separation from other pods (podAntiAffinity)")
		}
		if a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			out = append(out, "proximity to other pods (podAffinity)")
		}
	}
	var spread []string
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			spread = append(spread, c.TopologyKey)
		}
	}
	if len(spread) > 0 {
		out = append(out, "an even spread (topologySpreadConstraints over "+strings.Join(spread, ", ")+")")
	}
	if volumes := volumeClaims(pod); len(volumes) > 0 {
		out = append(out, "volumes that may be bound to other nodes or zones ("+strings.Join(volumes, ", ")+")")
	}
	if hasHostPorts(pod) {
		out = append(out, "ports of the host")
	}
	if resources := otherResources(pod); len(resources) > 0 {
		out = append(out, strings.Join(resources, ", "))
	}
	return out
}

// volumeClaims returns the names of a pod's volumes that are PersistentVolumeClaims, or become some.
func volumeClaims(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			out = append(out, v.Name)
		}
	}
	return out
}

func hasHostPorts(pod *corev1.Pod) bool {
	return slices.ContainsFunc(Containers(pod), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort > 0 || pod.Spec.HostNetwork })
	})
}

// otherResources returns the names of the resources that the containers request and that are no devices.
func otherResources(pod *corev1.Pod) []string {
	var out []string
	for _, c := range Containers(pod) {
		for name, quantity := range c.Resources.Requests {
			if !strings.Contains(string(name), "/") && !quantity.IsZero() {
				out = append(out, string(name))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
