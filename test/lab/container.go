package lab

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Container is what a container runtime would start for a container of a pod that runs on the
// node: a specification with what the CDI devices of the container's claims add to an empty one.
func (n *Node) Container(pod *corev1.Pod, name string) (*oci.Spec, error) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("pod %s has no container %s", pod.Name, name)
	}
	registry, err := cdi.NewCache(cdi.WithSpecDirs(n.Path(cdiDir)), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, err
	}
	spec := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
	if ids := n.kubelet.cdiDevices(pod, &pod.Spec.Containers[i]); len(ids) > 0 {
		completeNodes(registry, ids)
		if missing, err := registry.InjectDevices(spec, ids...); err != nil {
			return nil, fmt.Errorf("inject CDI devices (missing: %v): %w", missing, err)
		}
	}
	return spec, nil
}

// completeNodes completes device nodes for which the simulators, without root, could only make plain
// files. A container runtime reads type and numbers from the node.
func completeNodes(registry *cdi.Cache, ids []string) {
	for _, id := range ids {
		d := registry.GetDevice(id)
		if d == nil {
			continue // InjectDevices says so
		}
		for _, node := range slices.Concat(d.GetSpec().ContainerEdits.DeviceNodes, d.ContainerEdits.DeviceNodes) {
			if info, err := os.Lstat(cmp.Or(node.HostPath, node.Path)); err == nil && info.Mode().IsRegular() {
				node.Type, node.Major = "c", 1
			}
		}
	}
}

// cdiDevices are those of a container, by the requests of the pod's claims that it names.
func (k *kubelet) cdiDevices(pod *corev1.Pod, container *corev1.Container) (ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, prepared := range k.held[pod.UID] {
		for _, d := range prepared.devices {
			if prepared.isFor(pod, container, d.RequestNames) {
				ids = append(ids, d.CdiDeviceIds...)
			}
		}
	}
	return ids
}

// isFor reports whether a container gets the devices of requests of the claim.
func (p *preparedClaim) isFor(pod *corev1.Pod, container *corev1.Container, requests []string) bool {
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil && status.ResourceClaimName == p.ref.Name {
		return slices.ContainsFunc(status.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
			return m.ContainerName == container.Name && slices.Contains(requests, m.RequestName)
		})
	}
	for _, use := range container.Resources.Claims {
		if p.podName(pod) == use.Name && (use.Request == "" || slices.Contains(requests, use.Request)) {
			return true
		}
	}
	return false
}

// podName is the claim's name in the pod's spec.
func (p *preparedClaim) podName(pod *corev1.Pod) string {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil && *c.ResourceClaimName == p.ref.Name {
			return c.Name
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil && *status.ResourceClaimName == p.ref.Name {
			return status.Name
		}
	}
	return ""
}
