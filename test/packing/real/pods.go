package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/nodes"
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const (
	// usedAttribute is true for the devices of GPUs in use.
	usedAttribute = "used"
	container     = "main"
)

// ask makes a pod ask for a kind of devices. It returns the claim that the pod names, or nil.
type ask func(*corev1.Pod, workload.Kind) *resourceapi.ResourceClaim

func byClaim(pod *corev1.Pod, k workload.Kind) *resourceapi.ResourceClaim {
	return named(pod, fleet.Request(k))
}

// byUsedFirst prefers the GPUs in use for partitions.
func byUsedFirst(pod *corev1.Pod, k workload.Kind) *resourceapi.ResourceClaim {
	request := fleet.Request(k)
	if k.Profile == "" {
		return named(pod, request)
	}
	one := func(name string, selectors ...resourceapi.DeviceSelector) resourceapi.DeviceSubRequest {
		return resourceapi.DeviceSubRequest{
			Name: name, DeviceClassName: request.Exactly.DeviceClassName, Selectors: selectors,
			AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}
	}
	used := resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.attributes["` + names.DriverName + `"].?` + usedAttribute + `.orValue(false)`,
	}}
	return named(pod, resourceapi.DeviceRequest{
		Name: request.Name, FirstAvailable: []resourceapi.DeviceSubRequest{one("used", used), one("any")},
	})
}

// byExtendedResource asks for partitions by their extended resources, and for whole GPUs by claims.
func byExtendedResource(pod *corev1.Pod, k workload.Kind) *resourceapi.ResourceClaim {
	if k.Profile == "" {
		return byClaim(pod, k)
	}
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{extendedResource(k): resource.MustParse("1")}
	return nil
}

func extendedResource(k workload.Kind) corev1.ResourceName {
	return corev1.ResourceName("nvidia.com/mig-" + k.Profile)
}

// extendedResources are those of all partitions.
func extendedResources() (all []corev1.ResourceName) {
	for _, k := range workload.Kinds[:workload.WholeGPU] {
		all = append(all, extendedResource(k))
	}
	return all
}

// withRequests has pods request what their claims take at least, as the chart's policy does.
func withRequests(ctx context.Context, ask ask, classes []*resourceapi.DeviceClass) ask {
	least := nodes.Least(classes)
	return func(pod *corev1.Pod, k workload.Kind) *resourceapi.ResourceClaim {
		claim := ask(pod, k)
		pod.Spec.Containers[0].Resources.Limits = least(ctx, claim).List()
		return claim
	}
}

// named makes a claim and has the pod name it.
func named(pod *corev1.Pod, request resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: request.Name, ResourceClaimName: ptr.To(pod.Name)}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: request.Name}}
	return allocator.Claim(pod.Name, request)
}

// newPod is a pod that requests what a shape says of CPUs and memory: by these, the scheduler
// spreads pods by default.
func newPod(name string, s workload.Shape) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: container, Image: "busybox:1.35",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU:    *resource.NewMilliQuantity(s.CPU, resource.DecimalSI),
					corev1.ResourceMemory: *resource.NewQuantity(s.Memory<<20, resource.BinarySI),
				}},
			}},
		},
	}
}

// createPod makes a pod and the claim that it names.
func createPod(ctx context.Context, c *controlplane.Cluster, name string, s workload.Shape, ask ask) error {
	pod := newPod(name, s)
	if claim := ask(pod, workload.Kinds[s.Kind]); claim != nil {
		if _, err := c.Core.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	_, err := c.Core.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// deletePod ends a pod and its claim, as kubelets and the claims' controller would.
func deletePod(ctx context.Context, c *controlplane.Cluster, name string) error {
	pods, claims := c.Core.CoreV1().Pods(corev1.NamespaceDefault), c.Core.ResourceV1().ResourceClaims(corev1.NamespaceDefault)
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := pods.Delete(ctx, name, now); err != nil {
		return err
	}
	claim, err := claims.Get(ctx, claimOf(pod), metav1.GetOptions{})
	if err != nil {
		return err
	}
	claim.Status = resourceapi.ResourceClaimStatus{}
	if claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	claim.Finalizers = nil
	if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return claims.Delete(ctx, claim.Name, now)
}

// claimOf is the name of the claim of a pod that is bound.
func claimOf(pod *corev1.Pod) string {
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil {
		return made.ResourceClaimName
	}
	return pod.Name
}
