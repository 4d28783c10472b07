package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	// class is the device class that the pods ask for, extendedResource its other name.
	class            = "gpu-mig-1g-10gb.tranche.dev"
	extendedResource = "nvidia.com/mig-1g.10gb"
	// usedAttribute is true for the devices of GPUs in use.
	usedAttribute = "used"
	container     = "main"
)

// ask makes a pod ask for a partition. It returns the claim that the pod names, or nil.
type ask func(*corev1.Pod) *resourceapi.ResourceClaim

func byClaim(pod *corev1.Pod) *resourceapi.ResourceClaim {
	return named(pod, allocator.Request("gpu", class, 1))
}

// byUsedFirst prefers the GPUs in use.
func byUsedFirst(pod *corev1.Pod) *resourceapi.ResourceClaim {
	one := func(name string, selectors ...resourceapi.DeviceSelector) resourceapi.DeviceSubRequest {
		return resourceapi.DeviceSubRequest{
			Name: name, DeviceClassName: class, Selectors: selectors,
			AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}
	}
	used := resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.attributes["` + gpu.DriverName + `"].?` + usedAttribute + `.orValue(false)`,
	}}
	return named(pod, resourceapi.DeviceRequest{
		Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{one("used", used), one("any")},
	})
}

func byExtendedResource(pod *corev1.Pod) *resourceapi.ResourceClaim {
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{extendedResource: resource.MustParse("1")}
	return nil
}

// named makes a claim and has the pod name it.
func named(pod *corev1.Pod, request resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: request.Name, ResourceClaimName: ptr.To(pod.Name)}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: request.Name}}
	return allocator.Claim(pod.Name, request)
}

// newPod is a pod that asks for CPUs and memory as real ones do: by these, the scheduler spreads
// pods by default.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: container, Image: "busybox:1.35",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
				}},
			}},
		},
	}
}

// createPod makes a pod and the claim that it names.
func createPod(ctx context.Context, c *controlplane.Cluster, name string, ask ask) error {
	pod := newPod(name)
	if claim := ask(pod); claim != nil {
		if _, err := c.Core.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	_, err := c.Core.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// deletePods ends all pods and their claims, as kubelets and the claims' controller would.
func deletePods(ctx context.Context, c *controlplane.Cluster) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	pods, claims := c.Core.CoreV1().Pods(corev1.NamespaceDefault), c.Core.ResourceV1().ResourceClaims(corev1.NamespaceDefault)
	running, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range running.Items {
		if err := pods.Delete(ctx, running.Items[i].Name, now); err != nil {
			return err
		}
	}
	held, err := claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range held.Items {
		claim := &held.Items[i]
		claim.Status = resourceapi.ResourceClaimStatus{}
		if claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
		claim.Finalizers = nil
		if _, err := claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := claims.Delete(ctx, claim.Name, now); err != nil {
			return err
		}
	}
	return nil
}
